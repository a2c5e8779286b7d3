//! Enums whose values have one spelling each.

/// Declares an enum whose variants stand beside their spellings, with everything that follows from that list: `ALL`, the
/// function that gives the spelling, which is `as_str` where none is named, and `parse`, which finds the variant of a
/// spelling.
#[macro_export]
macro_rules! spelled {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variants:tt)* }) => {
        $crate::spelled! {
            $(#[$meta])*
            $vis enum $name { $($variants)* }
            /// The spelling, for users and for programs.
            fn as_str
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $spelling:literal,)*
        }
        $(#[$spelling_meta:meta])*
        fn $spell:ident
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of the declaration.
            $vis const ALL: [Self; [$($spelling),*].len()] = [$(Self::$variant),*];

            $(#[$spelling_meta])*
            $vis fn $spell(self) -> &'static str {
                match self {
                    $(Self::$variant => $spelling,)*
                }
            }

            /// The value with this spelling.
            $vis fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.$spell() == text)
            }
        }
    };
}

pub(crate) use spelled;
