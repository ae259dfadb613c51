//! Guards that dereference to the one inside them, and work runs under that.

/// Makes a guard dereference to one of its fields, which it is released with.
macro_rules! derefs_to {
    ($outer:ty, $field:ident: $inner:ty) => {
        impl std::ops::Deref for $outer {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.$field
            }
        }

        impl $crate::run::Guarded for $outer {
            fn view(&self) -> $crate::HoldView {
                $crate::run::Guarded::view(&self.$field)
            }

            fn end(self) -> $crate::Operation<Result<(), $crate::ReleaseError>> {
                $crate::run::Guarded::end(self.$field)
            }
        }
    };
}

pub(crate) use derefs_to;
