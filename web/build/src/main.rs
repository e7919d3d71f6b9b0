//! Two small jobs of the web build that need libraries:
//!
//! - `bindgen MODULE.wasm FOLDER`: writes the JavaScript, the types and the final module;
//! - `sizes FOLDER`: prints what a browser transfers, brotli-compressed, a file and in all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bindgen", module, folder] => bindgen(module.as_ref(), folder.as_ref()),
        ["sizes", folder] => sizes(folder.as_ref()),
        _ => bail!("expected: bindgen MODULE FOLDER, or sizes FOLDER"),
    }
}

fn bindgen(module: &Path, folder: &Path) -> Result<()> {
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(module)
        .web(true)?
        // The module lies beside its JavaScript, whatever path the site is served from.
        .omit_default_module_path(false)
        .typescript(true)
        .generate(folder)
        .with_context(|| module.display().to_string())
}

/// Endings of what counts as code.
const CODE: [&str; 5] = ["html", "css", "js", "mjs", "wasm"];

fn sizes(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    println!("{:<40} {:>12} {:>12}", "code", "bytes", "brotli");
    let (mut plain, mut packed) = (0, 0);
    for file in &files {
        let bytes = fs::read(file)?;
        let mut out = Vec::new();
        let params = brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 24, ..Default::default() };
        brotli::BrotliCompress(&mut bytes.as_slice(), &mut out, &params)?;
        println!("{:<40} {:>12} {:>12}", file.strip_prefix(folder)?.display(), bytes.len(), out.len());
        plain += bytes.len();
        packed += out.len();
    }
    println!("{:<40} {plain:>12} {packed:>12}", "in all");
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| CODE.contains(&e)) {
            files.push(path);
        }
    }
    Ok(())
}
