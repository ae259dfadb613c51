//! The length of a wait, of a lease or of a hold, as an option gives it.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Lit, Result};

use crate::duration::{self, NO_TIME};

/// The library's `limits::SHORTEST_LEASE`.
const SHORTEST: Duration = Duration::from_millis(20);
/// The library's `limits::LONGEST_LEASE`.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A time that is known, or an expression that only the running program knows.
pub(crate) struct Length {
    expression: Expr,
    known: Option<Duration>,
}

impl Parse for Length {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let expression: Expr = input.parse()?;
        let known = match &expression {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                Some(duration::parse(&text.value()).map_err(|why| Error::new(text.span(), why))?)
            }
            Expr::Lit(other) => return Err(Error::new_spanned(other, NO_TIME)),
            _ => None,
        };
        Ok(Self { expression, known })
    }
}

impl Length {
    /// Checks it against the limits of a lease.
    pub(crate) fn check_lease(&self, option: &str) -> Result<()> {
        match self.known {
            Some(known) if known < SHORTEST => Err(self.error(format!("`{option}` is at least 20ms"))),
            Some(known) if known > LONGEST => Err(self.error(format!("`{option}` is at most 100 years"))),
            _ => Ok(()),
        }
    }

    /// Whether both are known, and this one is the longer one.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        self.known.zip(other.known).is_some_and(|(this, other)| this > other)
    }

    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::new_spanned(&self.expression, message)
    }

    /// The expression of type `Duration`.
    pub(crate) fn tokens(&self) -> TokenStream {
        match (self.known, &self.expression) {
            (Some(known), _) => {
                let (seconds, nanoseconds) = (known.as_secs(), known.subsec_nanos());
                quote!(::core::time::Duration::new(#seconds, #nanoseconds))
            }
            (None, expression) => quote!(#expression),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_library() {
        assert_eq!(SHORTEST, leasehold::limits::SHORTEST_LEASE);
        assert_eq!(LONGEST, leasehold::limits::LONGEST_LEASE);
    }
}
