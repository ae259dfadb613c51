//! From the attribute and the function to the function under its lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, Result, parse2};

use crate::function::Function;
use crate::options::Options;
use crate::{lock_name, returns};

/// The function under its lock; or the errors, and the function as it was, so that its callers are no errors besides.
pub(crate) fn locked(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let expanded = match (parse2(arguments), parse2(item.clone())) {
        (Ok(options), Ok(function)) => under_lock(&options, &function),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(mut error), Err(other)) => {
            error.combine(other);
            Err(error)
        }
    };
    expanded.unwrap_or_else(|error| {
        let errors = error.into_compile_error();
        // A parameter for the lock alone is not used without the lock.
        quote!(#errors #[allow(unused)] #item)
    })
}

fn under_lock(options: &Options, function: &Function) -> Result<TokenStream> {
    let declared = returns::declared(&function.signature, options.skip_if_busy)?;
    let request = request(options, function)?;
    // Variables of this are not those of the body, whatever their names.
    let span = Span::mixed_site();
    let work = work(options, function, &returns::nameable(declared));
    // A return type that does not fit is the error that the compiler shows for this call.
    let run = match (function.is_async(), &options.guard) {
        (true, None) => "run",
        (true, Some(_)) => "run_with",
        (false, _) => "run_blocking",
    };
    let run = Ident::new(run, span.located_at(declared.span()));
    let dot_await = function.is_async().then(|| quote_spanned!(span=> .await));
    let mut done = quote_spanned!(span=> request.#run(#work) #dot_await);
    if options.skip_if_busy {
        // Of a busy lock, or of the body.
        done = quote_spanned!(span=> ::core::result::Result::map(#done, ::core::option::Option::flatten));
    }
    let Function { attributes, visibility, signature, inner_attributes, .. } = function;
    Ok(quote_spanned! {span=>
        #(#attributes)*
        #visibility #signature {
            #(#inner_attributes)*
            let request = #request;
            #done
        }
    })
}

/// The request for the lock.
fn request(options: &Options, function: &Function) -> Result<TokenStream> {
    let span = Span::mixed_site();
    let bindings = function.bindings();
    let name = lock_name::expression(&options.name, &bindings)?;
    let given = client(options, function, &bindings)?;
    let client = Ident::new("client", span);
    let mut request = options.kind.request(&client, &name, options.skip_if_busy);
    for (option, length) in [
        ("wait", &options.wait),
        ("lease", &options.lease),
        ("min_hold", &options.min_hold),
        ("max_hold", &options.max_hold),
    ] {
        if let Some(length) = length {
            let (option, length) = (Ident::new(option, span), length.tokens());
            request = quote_spanned!(span=> #request.#option(#length));
        }
    }
    let borrowed = quote_spanned!(span.located_at(given.span())=> &#given);
    Ok(quote_spanned! {span=>
        {
            let client: &::leasehold::Client = #borrowed;
            #request
        }
    })
}

/// The expression for the client.
fn client(options: &Options, function: &Function, bindings: &[Ident]) -> Result<TokenStream> {
    if let Some(client) = &options.client {
        return Ok(quote!(#client));
    }
    if let Some(client) = bindings.iter().find(|binding| *binding == "client") {
        return Ok(quote!(#client));
    }
    if let Some(this) = bindings.iter().find(|binding| *binding == "self") {
        let field = Ident::new("client", Span::call_site());
        return Ok(quote!(#this.#field));
    }
    let message = "which client? Name a parameter `client`, or write `client = …` in the attribute";
    Err(Error::new_spanned(&function.signature.ident, message))
}

/// The body as the work of `run`, `run_with` or `run_blocking`. `?`, `return` and the last expression in it have the declared type.
fn work(options: &Options, function: &Function, declared: &syn::Type) -> TokenStream {
    let span = Span::mixed_site();
    let (body, captured) = (&function.body, function.captured());
    let captured = captured.iter().map(|variable| {
        let is_unused = variable.to_string().starts_with('_');
        let allow = is_unused.then(|| quote!(#[allow(clippy::used_underscore_binding)]));
        quote_spanned!(span=> #allow let _ = &#variable;)
    });
    let captured = quote!(#(#captured)*);
    let guard = options.guard.as_ref().map_or_else(|| quote!(_), |guard| quote!(#guard));
    let parameter = quote_spanned!(span=> #guard: ::leasehold::HoldView);
    if !function.is_async() {
        return quote_spanned!(span=> move |#parameter| -> #declared { #captured #body });
    }
    // An `async` block cannot declare its type: the first `return` in it decides.
    let work = quote_spanned! {span=>
        async move {
            if let ::core::option::Option::Some(never) = ::core::option::Option::None::<#declared> {
                return never;
            }
            #captured
            #body
        }
    };
    if options.guard.is_some() { quote_spanned!(span=> move |#parameter| #work) } else { work }
}
