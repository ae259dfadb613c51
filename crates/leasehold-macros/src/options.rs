//! The arguments of the attribute.

use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Result, Token};

use crate::kind::Kind;
use crate::length::Length;

const KNOWN: &str = "`client`, `kind`, `wait`, `lease`, `min_hold`, `max_hold`, `guard` and `skip_if_busy`";

/// The name of the lock, and the options.
pub(crate) struct Options {
    pub(crate) name: LitStr,
    pub(crate) client: Option<Expr>,
    pub(crate) kind: Kind,
    pub(crate) wait: Option<Length>,
    pub(crate) lease: Option<Length>,
    pub(crate) min_hold: Option<Length>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) guard: Option<Ident>,
    pub(crate) skip_if_busy: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(LitStr) {
            let message = "the name of the lock comes first, in quotes: `#[locked(\"coupon:{id}\")]`";
            return Err(Error::new(input.span(), message));
        }
        let mut options = Self {
            name: input.parse()?,
            client: None,
            kind: Kind::Plain,
            wait: None,
            lease: None,
            min_hold: None,
            max_hold: None,
            guard: None,
            skip_if_busy: false,
        };
        let mut given: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let option: Ident = input.parse()?;
            if given.contains(&option) {
                return Err(Error::new(option.span(), format!("`{option}` is there twice")));
            }
            options.set(&option, input)?;
            given.push(option);
        }
        options.check()?;
        Ok(options)
    }
}

impl Options {
    /// Parses what follows the name of an option.
    fn set(&mut self, option: &Ident, input: ParseStream<'_>) -> Result<()> {
        match option.to_string().as_str() {
            "client" => self.client = Some(value(option, "self.locks", input)?),
            "kind" => self.kind = value(option, "fair", input)?,
            "wait" => self.wait = Some(value(option, "\"2s\"", input)?),
            "lease" => self.lease = Some(value(option, "\"5s\"", input)?),
            "min_hold" => self.min_hold = Some(value(option, "\"1s\"", input)?),
            "max_hold" => self.max_hold = Some(value(option, "\"1m\"", input)?),
            "guard" => self.guard = Some(value(option, "hold", input)?),
            "skip_if_busy" => {
                if input.peek(Token![=]) {
                    return Err(input.error("`skip_if_busy` has no value: write it alone"));
                }
                self.skip_if_busy = true;
            }
            other => {
                return Err(Error::new(option.span(), format!("there is no option `{other}`, but {KNOWN}")));
            }
        }
        Ok(())
    }

    /// Refuses options that contradict each other, and leases that the library would refuse.
    fn check(&self) -> Result<()> {
        if let (Some(wait), true) = (&self.wait, self.skip_if_busy) {
            return Err(wait.error("`skip_if_busy` does not wait: leave out one of both"));
        }
        for (option, length) in
            [("lease", &self.lease), ("min_hold", &self.min_hold), ("max_hold", &self.max_hold)]
        {
            if let Some(length) = length {
                length.check_lease(option)?;
            }
        }
        if let Some(max_hold) = self.max_hold.as_ref().filter(|_| !self.kind.is_lock()) {
            return Err(max_hold.error("permits have a `lease` and no `max_hold`"));
        }
        for (option, longest) in [("lease", &self.lease), ("max_hold", &self.max_hold)] {
            if let (Some(min_hold), Some(longest)) = (&self.min_hold, longest)
                && min_hold.exceeds(longest)
            {
                return Err(
                    min_hold.error(format!("`min_hold` is longer than `{option}`, which ends the hold"))
                );
            }
        }
        Ok(())
    }
}

/// The value of an option; `example` is one.
fn value<T: Parse>(option: &Ident, example: &str, input: ParseStream<'_>) -> Result<T> {
    if !input.peek(Token![=]) {
        return Err(Error::new(option.span(), format!("`{option}` needs a value: `{option} = {example}`")));
    }
    input.parse::<Token![=]>()?;
    input.parse()
}
