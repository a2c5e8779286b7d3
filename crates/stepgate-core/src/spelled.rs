//! Enums whose values have one spelling each.

/// Declares an enum whose variants stand beside their spellings, with everything that follows from that list: `ALL`, the
/// function that gives the spelling, and `parse`, which finds the variant of a spelling.
#[macro_export]
macro_rules! spelled {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $spelling:literal,)*
        }
        $(#[$spelling_meta:meta])*
        fn $spell:ident
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: [Self; [$($spelling),*].len()] = [$(Self::$variant),*];

            $(#[$spelling_meta])*
            pub fn $spell(self) -> &'static str {
                match self {
                    $(Self::$variant => $spelling,)*
                }
            }

            /// The value with this spelling.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.$spell() == text)
            }
        }
    };
}

pub(crate) use spelled;
