//! The kind of lock.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Ident, Lit, Result, parenthesized, token};

const KNOWN: &str = "`plain`, `fair`, `read`, `write`, `fenced` and `leased_semaphore(n)`";

/// What `kind = …` gives.
pub(crate) enum Kind {
    Plain,
    Fair,
    Read,
    Write,
    Fenced,
    /// With this number of permits.
    LeasedSemaphore(Box<Expr>),
}

impl Parse for Kind {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let kind: Ident = input.parse()?;
        let kind_error = |message: String| Error::new(kind.span(), message);
        let permits = if input.peek(token::Paren) { Some(permits(input)?) } else { None };
        let of_kind = match (kind.to_string().as_str(), permits) {
            ("plain", None) => Self::Plain,
            ("fair", None) => Self::Fair,
            ("read", None) => Self::Read,
            ("write", None) => Self::Write,
            ("fenced", None) => Self::Fenced,
            ("leased_semaphore", Some(permits)) => Self::LeasedSemaphore(Box::new(permits)),
            ("leased_semaphore", None) => {
                return Err(kind_error("write the number of permits: `leased_semaphore(3)`".into()));
            }
            ("plain" | "fair" | "read" | "write" | "fenced", Some(_)) => {
                return Err(kind_error(format!("`{kind}` has no number of permits")));
            }
            (other, _) => return Err(kind_error(format!("there is no kind `{other}`, but {KNOWN}"))),
        };
        Ok(of_kind)
    }
}

/// The number in brackets. One that is written as a number has to be in range.
fn permits(input: ParseStream<'_>) -> Result<Expr> {
    let content;
    parenthesized!(content in input);
    let permits: Expr = content.parse()?;
    if !content.is_empty() {
        return Err(content.error("one number of permits is enough"));
    }
    if let Expr::Lit(ExprLit { lit, .. }) = &permits {
        let number = if let Lit::Int(number) = lit { number.base10_parse::<i32>().ok() } else { None };
        if number.is_none_or(|number| number < 1) {
            return Err(Error::new_spanned(lit, format!("the number of permits is from 1 to {}", i32::MAX)));
        }
    }
    Ok(permits)
}

impl Kind {
    /// Whether its holds take `max_hold`.
    pub(crate) fn is_lock(&self) -> bool {
        !matches!(self, Self::LeasedSemaphore(_))
    }

    /// The request for one hold of the lock that `name` names. `client` is a variable that borrows the client.
    pub(crate) fn request(&self, client: &Ident, name: &TokenStream, tries_once: bool) -> TokenStream {
        let span = Span::mixed_site();
        let acquire = Ident::new(if tries_once { "try_acquire" } else { "acquire" }, span);
        match self {
            Self::Plain => quote_spanned!(span=> #client.lock(#name).#acquire()),
            Self::Fair => quote_spanned!(span=> #client.fair_lock(#name).#acquire()),
            Self::Read => quote_spanned!(span=> #client.rw_lock(#name).read().#acquire()),
            Self::Write => quote_spanned!(span=> #client.rw_lock(#name).write().#acquire()),
            Self::Fenced => quote_spanned!(span=> #client.fenced_lock(#name).#acquire()),
            Self::LeasedSemaphore(permits) => {
                quote_spanned!(span=> #client.leased_semaphore(#name).with_permits(#permits).#acquire(1))
            }
        }
    }
}
