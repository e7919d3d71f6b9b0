//! Small jobs of the web build that need libraries:
//!
//! - `bindgen MODULE.wasm FOLDER`: writes the JavaScript, the types and the final module;
//! - `bare FOLDER`: takes comments and indentation out of the JavaScript and CSS that lie in it;
//! - `sizes FOLDER`: prints what a browser transfers, brotli-compressed, a file and in all;
//! - `list FOLDER`: writes `files.json` into each model's folder: names, sizes and SHA-256 of the files to load.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bindgen", module, folder] => bindgen(module.as_ref(), folder.as_ref()),
        ["bare", folder] => make_bare(folder.as_ref(), &["js", "css"]),
        ["sizes", folder] => sizes(folder.as_ref()),
        ["list", folder] => list(folder.as_ref()),
        _ => bail!("expected: bindgen MODULE FOLDER, bare FOLDER, sizes FOLDER, or list FOLDER"),
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
        .with_context(|| module.display().to_string())?;
    make_bare(folder, &["js"])
}

fn make_bare(folder: &Path, endings: &[&str]) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)) {
            fs::write(&path, bare(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}

/// JavaScript or CSS without the lines that are comments, and without indentation: no text in it may span lines.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        // Code after a comment stays, with it.
        inside |= line.starts_with("/*") && line.find("*/").is_none_or(|at| at + 2 == line.len());
        if !inside && !line.is_empty() && !line.starts_with("//") {
            out.push_str(line);
            out.push('\n');
        }
        inside &= !line.ends_with("*/");
    }
    out
}

fn list(models: &Path) -> Result<()> {
    for entry in fs::read_dir(models).with_context(|| models.display().to_string())? {
        let folder = entry?.path();
        if !folder.join("config.json").is_file() {
            continue;
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let json = ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"];
            let weights = name.starts_with("model") && name.ends_with(".safetensors");
            if !json.contains(&name.as_str()) && !weights {
                continue;
            }
            let bytes = fs::read(&path)?;
            let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            files.push(format!("  {{\"name\": \"{name}\", \"size\": {}, \"sha256\": \"{hash}\"}}", bytes.len()));
        }
        files.sort();
        fs::write(folder.join("files.json"), format!("{{\"files\": [\n{}\n]}}\n", files.join(",\n")))?;
    }
    Ok(())
}

/// Endings of what counts as code.
const CODE: [&str; 5] = ["html", "css", "js", "mjs", "wasm"];

/// Most bytes of code that a browser may have to transfer.
const MOST_PACKED: usize = 900_000;

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
    if packed > MOST_PACKED {
        bail!("a browser would transfer {packed} bytes of code: expected at most {MOST_PACKED}");
    }
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
