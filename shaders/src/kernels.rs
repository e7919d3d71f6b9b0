//! The kernels: one WGSL file each, under `wgsl/`.

/// Declares the kernels and the shared files once: the enum, its paths and the embedded text cannot disagree.
macro_rules! files {
    (kernels { $($(#[$doc:meta])* $name:ident = $path:literal,)* } shared { $($shared:literal,)* }) => {
        /// A kernel: one compute entry point `main`, in `wgsl/<path>.wgsl`.
        #[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kernel { $($(#[$doc])* $name,)* }

        impl Kernel {
            /// Every kernel.
            pub const ALL: &'static [Kernel] = &[$(Kernel::$name,)*];
            /// Its file, without `wgsl/` and the ending.
            pub const fn path(self) -> &'static str {
                match self { $(Kernel::$name => $path,)* }
            }
        }

        /// The text of a shader file.
        pub(crate) fn file(path: &str) -> Option<&'static str> {
            match path {
                $($path => Some(include_str!(concat!("../wgsl/", $path, ".wgsl"))),)*
                $($shared => Some(include_str!(concat!("../wgsl/", $shared, ".wgsl"))),)*
                _ => None,
            }
        }
    };
}

files! {
    kernels {
        /// Embedding rows of token ids.
        Embed = "linear/embed",
        /// Draws a token a row: filters, exponential race, end of text.
        Draw = "sample/draw",
    }
    shared {
        "common/head",
        "common/threefry",
        "common/weights",
    }
}
