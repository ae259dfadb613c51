//! The return type of the function.

use syn::visit_mut::{self, VisitMut};
use syn::{Error, GenericArgument, PathArguments, Result, ReturnType, Signature, Type, parse_quote};

/// The types of the standard library that are certainly not a `Result`. Any other name may be one by another name.
const OTHERS: &[&str] = &[
    "bool", "char", "str", "f32", "f64", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32",
    "i64", "i128", "isize", "String", "Option", "Vec",
];

/// The declared return type, which has to be a `Result`; of an `Option` with `skip_if_busy`.
pub(crate) fn declared(signature: &Signature, skip_if_busy: bool) -> Result<&Type> {
    let wanted = if skip_if_busy { "Result<Option<T>, E>" } else { "Result<T, E>" };
    let why = "the error may be that of the lock: `E` implements `From<leasehold::Error>`";
    let ReturnType::Type(_, declared) = &signature.output else {
        let message = format!("return a `{}`, as {why}", wanted.replace('T', "()"));
        return Err(Error::new_spanned(&signature.ident, message));
    };
    if is_future(declared) {
        let message = "`locked` is for `async fn` and `fn`, and not for functions that return a future";
        return Err(Error::new_spanned(declared, message));
    }
    if is_no_result(declared) {
        return Err(Error::new_spanned(declared, format!("return a `{wanted}`, as {why}")));
    }
    if skip_if_busy
        && let Some(value) = value_of_result(declared)
        && !is_option(value)
    {
        let message =
            "with `skip_if_busy` return a `Result<Option<T>, E>`: `Ok(None)` says that the lock was busy";
        return Err(Error::new_spanned(value, message));
    }
    Ok(declared)
}

fn is_future(declared: &Type) -> bool {
    match declared {
        Type::ImplTrait(_) => true,
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Pin"),
        _ => false,
    }
}

fn is_no_result(declared: &Type) -> bool {
    match declared {
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|last| OTHERS.iter().any(|other| last.ident == other))
        }
        // What a macro makes is not known.
        Type::Macro(_) | Type::Group(_) | Type::Paren(_) => false,
        _ => true,
    }
}

/// The `T` of a type that is written as `Result<T, …>`.
fn value_of_result(declared: &Type) -> Option<&Type> {
    let Type::Path(path) = declared else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(value) => Some(value),
        _ => None,
    })
}

/// Whether it is written as an `Option`, or may be one by another name.
fn is_option(value: &Type) -> bool {
    match value {
        Type::Path(path) => {
            path.path.segments.len() > 1 || path.path.segments.iter().any(|only| only.ident == "Option")
        }
        Type::Macro(_) | Type::Group(_) | Type::Paren(_) => true,
        _ => false,
    }
}

/// The type as the body can name it: an `impl Trait` in it is left to the compiler.
pub(crate) fn nameable(declared: &Type) -> Type {
    let mut nameable = declared.clone();
    Unnamed.visit_type_mut(&mut nameable);
    nameable
}

struct Unnamed;

impl VisitMut for Unnamed {
    fn visit_type_mut(&mut self, part: &mut Type) {
        if matches!(part, Type::ImplTrait(_)) {
            *part = parse_quote!(_);
        } else {
            visit_mut::visit_type_mut(self, part);
        }
    }
}
