//! Objects of JSON answers.

/// Defines an object and the function that makes it. Each field is listed once, with its name, type and value.
macro_rules! object {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)?,
        $make_vis:vis fn $make:ident($($argument:ident: $is:ty),* $(,)?) {
            $($(#[$of_field:meta])* $field:ident: $type:ty = $value:expr,)*
        }
    ) => {
        #[derive(serde::Serialize)]
        $(#[$meta])*
        $vis struct $name $(<$life>)? {
            $($(#[$of_field])* $field: $type,)*
        }

        $make_vis fn $make $(<$life>)? ($($argument: $is),*) -> $name $(<$life>)? {
            $name { $($field: $value,)* }
        }
    };
}

pub(super) use object;
