//! Enums whose variants have a word each: for the command line, for helper processes, and in results.

/// Defines such an enum. `ALL` holds its variants in order.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$inner])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            pub(crate) fn find(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.word() == word)
            }
        }
    };
}

pub(crate) use words;
