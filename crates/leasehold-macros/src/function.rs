//! The function under the attribute.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};
use syn::{Attribute, Error, FnArg, Ident, PatIdent, Result, Safety, Signature, Token, Visibility, braced};

/// A function with a body. The body is not parsed, so that an unfinished one does not hide the function from an editor.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// The attributes of the form `#![…]`, which are in front of the body.
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let at = input.span();
        let not_a_function =
            |_| Error::new(at, "`locked` is for functions: put it on an `async fn` or a `fn`");
        let visibility = input.parse().map_err(not_a_function)?;
        let signature: Signature = input.parse().map_err(not_a_function)?;
        if input.peek(Token![;]) {
            return Err(Error::new_spanned(
                signature,
                "this function has no body: put `locked` where it has one",
            ));
        }
        let content;
        braced!(content in input);
        let inner_attributes = Attribute::parse_inner(&content)?;
        let body = content.parse()?;
        let function = Self { attributes, visibility, signature, inner_attributes, body };
        function.check()?;
        Ok(function)
    }
}

impl Function {
    fn check(&self) -> Result<()> {
        if let Some(constness) = &self.signature.constness {
            return Err(Error::new_spanned(constness, "a `const fn` cannot wait for a lock"));
        }
        if let Safety::Unsafe(unsafety) = &self.signature.safety {
            let message = "put `locked` on a safe function, and call the `unsafe fn` in it";
            return Err(Error::new_spanned(unsafety, message));
        }
        Ok(())
    }

    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some()
    }

    /// The variables that the parameters make, in their order, `self` included.
    pub(crate) fn bindings(&self) -> Vec<Ident> {
        let mut bindings = Bindings::default();
        for parameter in &self.signature.inputs {
            match parameter {
                FnArg::Receiver(receiver) => {
                    bindings.0.push(Ident::new("self", receiver.self_token.span));
                }
                // Whether a parameter under a condition is there is not known yet.
                FnArg::Typed(typed)
                    if typed.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) => {}
                FnArg::Typed(typed) => bindings.visit_pat(&typed.pat),
            }
        }
        bindings.0
    }

    /// Those that the body moves into itself as a whole, so that they are dropped with it: the ones that it names, for others are
    /// unused, of which the compiler shall warn; and those that begin with `_`, of which it does not.
    pub(crate) fn captured(&self) -> Vec<Ident> {
        let mut bindings = self.bindings();
        bindings.retain(|binding| binding.to_string().starts_with('_') || names(&self.body, binding));
        bindings
    }
}

#[derive(Default)]
struct Bindings(Vec<Ident>);

impl<'ast> Visit<'ast> for Bindings {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        // Those of `A(x) | B(x)` are one.
        if !self.0.contains(&pattern.ident) {
            self.0.push(pattern.ident.clone());
        }
        visit::visit_pat_ident(self, pattern);
    }
}

fn names(body: &TokenStream, binding: &Ident) -> bool {
    body.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *binding,
        TokenTree::Group(group) => names(&group.stream(), binding),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
