//! The macro that turns a table of messages into an enum with its codec.

/// Declares a protocol's messages once: number, name in the specification's words, fields in order.
///
/// From the table come the enum, `number()`, `name()`, `body_size()`, `put_body()`, `take_body()`,
/// and `NUMBERS`, the list of known numbers with their names. See the crate's example.
#[macro_export]
macro_rules! messages {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident for $context:ty {
            $(
                $(#[$doc:meta])*
                $number:literal $name:ident { $($field:ident : $type:ty),* $(,)? }
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis enum $enum {
            $(
                $(#[$doc])*
                #[allow(missing_docs)]
                $name { $($field: $type),* },
            )*
        }

        impl $enum {
            /// Every known message: number and name.
            pub const NUMBERS: &'static [(u8, &'static str)] = &[$(($number, stringify!($name))),*];

            /// The message's number on the wire.
            pub fn number(&self) -> u8 {
                match self { $($enum::$name { .. } => $number),* }
            }

            /// The message's name, for logs.
            pub fn name(&self) -> &'static str {
                match self { $($enum::$name { .. } => stringify!($name)),* }
            }

            /// Size of the fields in bytes, without any header.
            #[allow(unused_variables)]
            pub fn body_size(&self, context: $context) -> usize {
                match self {
                    $($enum::$name { $($field),* } =>
                        0 $(+ $crate::Field::<$context>::size($field, context))*),*
                }
            }

            /// Appends the fields.
            #[allow(unused_variables)]
            pub fn put_body(&self, context: $context, out: &mut Vec<u8>) {
                match self {
                    $($enum::$name { $($field),* } => {
                        $($crate::Field::<$context>::put($field, context, out);)*
                    }),*
                }
            }

            /// Takes the fields of message `number`; `None` inside `Ok` never happens: an unknown
            /// number is [`Blame::Unsupported`]($crate::Blame).
            #[allow(unused_variables)]
            pub fn take_body(
                number: u8,
                context: $context,
                from: &mut $crate::Reader,
            ) -> Result<Self, $crate::Blame> {
                match number {
                    $($number => {
                        $(let $field = <$type as $crate::Field<$context>>::get(context, from)
                            .map_err(|blame| $crate::in_field(
                                blame, stringify!($name), stringify!($field)))?;)*
                        Ok($enum::$name { $($field),* })
                    })*
                    _ => Err($crate::Blame::Unsupported(format!("message number {number}"))),
                }
            }
        }
    };
}

/// Declares a plain record that is a [`Field`](crate::Field): its fields in order.
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident for $context:ty {
            $($(#[$doc:meta])* $fvis:vis $field:ident : $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* $fvis $field: $type),* }

        impl $crate::Field<$context> for $name {
            #[allow(unused_variables)]
            fn size(&self, c: $context) -> usize {
                0 $(+ $crate::Field::<$context>::size(&self.$field, c))*
            }
            #[allow(unused_variables)]
            fn put(&self, c: $context, out: &mut Vec<u8>) {
                $($crate::Field::<$context>::put(&self.$field, c, out);)*
            }
            #[allow(unused_variables)]
            fn get(c: $context, from: &mut $crate::Reader) -> Result<Self, $crate::Blame> {
                Ok($name {
                    $($field: <$type as $crate::Field<$context>>::get(c, from)
                        .map_err(|b| $crate::in_field(b, stringify!($name), stringify!($field)))?),*
                })
            }
        }
    };
}

/// Names the message and field in a decoding error. Used by the macros.
#[doc(hidden)]
pub fn in_field(blame: crate::Blame, message: &str, field: &str) -> crate::Blame {
    match blame {
        crate::Blame::Malformed(what) => {
            crate::Blame::Malformed(format!("{message}: {field}: {what}"))
        }
        other => other,
    }
}
