//! Guards that dereference to the one inside them.

/// Makes a guard dereference to one of its fields.
macro_rules! derefs_to {
    ($outer:ty, $field:ident: $inner:ty) => {
        impl std::ops::Deref for $outer {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.$field
            }
        }
    };
}

pub(crate) use derefs_to;
