//! The name of the lock: a format string over the parameters of the function.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Ident, Index, LitStr, Result};

/// The expression that makes the name, out of the variables in `bindings`.
pub(crate) fn expression(literal: &LitStr, bindings: &[Ident]) -> Result<TokenStream> {
    let error = |message: String| Error::new(literal.span(), message);
    let text = literal.value();
    if text.is_empty() {
        return Err(error("the name of the lock is empty".into()));
    }
    let (mut pieces, mut arguments) = (String::new(), Vec::new());
    let mut rest = text.as_str();
    while let Some(brace) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(brace);
        pieces.push_str(before);
        if let escape @ ("{{" | "}}") = from.get(..2).unwrap_or_default() {
            pieces.push_str(escape);
            rest = &from[2..];
            continue;
        }
        let Some(placeholder) = from.strip_prefix('{') else {
            return Err(error("there is a `}` without its `{`: write `}}` for a brace of the name".into()));
        };
        let Some((placeholder, after)) = placeholder.split_once('}') else {
            return Err(error("there is a `{` without its `}`: write `{{` for a brace of the name".into()));
        };
        let (path, spec) = placeholder.split_once(':').unwrap_or((placeholder, ""));
        let argument = argument(path.trim(), literal.span(), bindings)
            .map_err(|why| error(format!("`{{{placeholder}}}`: {why}")))?;
        if spec.contains('$') {
            return Err(error(format!("`{{{placeholder}}}`: write the width and the precision as numbers")));
        }
        let colon = if spec.is_empty() { "" } else { ":" };
        pieces.extend(["{", &arguments.len().to_string(), colon, spec, "}"]);
        arguments.push(argument);
        rest = after;
    }
    pieces.push_str(rest);
    let span = Span::mixed_site().located_at(literal.span());
    if arguments.is_empty() {
        let name = LitStr::new(&pieces.replace("{{", "{").replace("}}", "}"), span);
        return Ok(quote!(#name));
    }
    let format = LitStr::new(&pieces, span);
    Ok(quote_spanned!(span=> ::std::format!(#format, #(#arguments),*)))
}

/// A variable or one of its fields. The variable is the parameter's own, also if a macro has named it.
fn argument(path: &str, span: Span, bindings: &[Ident]) -> std::result::Result<TokenStream, String> {
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or_default();
    if first.is_empty() || first.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("a placeholder has the name of a parameter; {}", list(bindings)));
    }
    let Some(binding) = bindings.iter().find(|binding| *binding == first) else {
        return Err(format!("there is no parameter `{first}`; {}", list(bindings)));
    };
    let mut variable = binding.clone();
    variable.set_span(binding.span().located_at(span));
    let mut argument = quote!(#variable);
    for part in parts {
        let field = syn::parse_str::<Ident>(part).map(|mut field| {
            field.set_span(span);
            quote!(#field)
        });
        let field = field.or_else(|_| {
            let index = part.parse().map(|index| Index { index, span });
            index.map(|index| quote!(#index))
        });
        let Ok(field) = field else { return Err(format!("`{part}` is not a field: only fields may follow")) };
        argument = quote_spanned!(span=> #argument.#field);
    }
    Ok(argument)
}

/// The variables that there are, for errors.
fn list(bindings: &[Ident]) -> String {
    let names: Vec<_> = bindings.iter().map(|binding| format!("`{binding}`")).collect();
    match names.split_last() {
        None => "the function has none".into(),
        Some((last, [])) => format!("there is {last}"),
        Some((last, others)) => format!("there are {} and {last}", others.join(", ")),
    }
}
