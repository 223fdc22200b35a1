//! Pages and pictures from outside: the files that they are, and what a browser makes of them.

mod browser;
mod files;
mod machine;
mod sample;
