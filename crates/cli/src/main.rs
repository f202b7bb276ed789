//! The program `tidegate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::main()
}
