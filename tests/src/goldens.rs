//! The operator cases of third-party libraries: `tests/golden/ops`, described by its manifest.

use std::path::Path;

use deltanet::Rule;
use deltanet::delta::{Options, Shape};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::operators::Tensors;

#[derive(Deserialize)]
struct Manifest {
    cases: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    file: String,
    variant: String,
    params: Params,
    cu_seqlens: Option<Vec<u32>>,
    tolerance_f32: Tolerance,
}

#[derive(Deserialize)]
struct Params {
    use_qk_l2norm: bool,
}

/// Of the largest value of each tensor.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Tolerance {
    /// Token by token.
    pub recurrent_relmax: f64,
    /// Chunk by chunk.
    pub chunk_relmax: f64,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Its name.
    pub name: String,
    /// Inputs.
    pub tensors: Tensors,
    /// `[B, T, HV, V]`.
    pub o: Vec<f32>,
    /// `[N, HV, K, V]`.
    pub final_state: Vec<f32>,
    /// `[N, H, K]` or empty.
    pub final_sums: Vec<f32>,
    /// What is allowed.
    pub tolerance: Tolerance,
}

fn rule(variant: &str) -> Rule {
    match variant {
        "linear_attention" => Rule::LINEAR_ATTENTION,
        "scalar_decay_linear_attention(simple_gla)" => Rule::SCALAR_DECAY,
        "deltanet" => Rule::DELTANET,
        "longhorn(scalar beta)" => Rule::LONGHORN,
        "gated_deltanet" => Rule::GATED_DELTANET,
        "kda" => Rule::KDA,
        "preconditioned_deltanet (g=0)" => Rule::PRECONDITIONED_DELTANET,
        "preconditioned_gdn" => Rule::PRECONDITIONED_GATED_DELTANET,
        "preconditioned_kda" => Rule::PRECONDITIONED_KDA,
        other => panic!("manifest.json: unknown variant {other}"),
    }
}

/// All 27 cases.
pub fn all() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/ops");
    let text = std::fs::read(folder.join("manifest.json")).expect("manifest.json");
    let manifest: Manifest = serde_json::from_slice(&text).expect("manifest.json");
    let cases: Vec<Golden> = manifest.cases.into_iter().map(|e| load(&folder, e)).collect();
    assert_eq!(cases.len(), 27, "operator cases");
    cases
}

fn load(folder: &Path, entry: Entry) -> Golden {
    let bytes = std::fs::read(folder.join(&entry.file)).expect("a golden file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let shape_of = |name: &str| file.tensor(name).map(|t| t.shape().to_vec()).unwrap_or_default();
    let optional = |name: &str| file.tensor(name).ok().map(|t| bytemuck::pod_collect_to_vec::<u8, f32>(t.data()));
    let tensor = |name: &str| optional(name).unwrap_or_else(|| panic!("{}: no tensor {name}", entry.name));
    // Where there is one, the f64 result is the truth.
    let truth = |name: &str| optional(&format!("{name}_f64")).or_else(|| optional(name)).unwrap_or_default();
    let (q, v) = (shape_of("q"), shape_of("v"));
    let shape = Shape { batch: q[0], tokens: q[1], heads: q[2], value_heads: v[2], key_dim: q[3], value_dim: v[3] };
    let mut beta = optional("beta").unwrap_or_default();
    let k = tensor("k");
    let rule = rule(&entry.variant);
    if rule == Rule::LONGHORN {
        // Stored is β = b / (1 + b‖k‖²): back to b.
        for (b, k) in beta.iter_mut().zip(k.chunks_exact(shape.key_dim)) {
            let norm: f64 = k.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            *b = (f64::from(*b) / (1.0 - f64::from(*b) * norm)) as f32;
        }
    }
    let tensors = Tensors {
        rule,
        shape,
        options: Options { l2norm: entry.params.use_qk_l2norm, ..Options::default() },
        q: tensor("q"),
        k,
        v: tensor("v"),
        beta,
        g: optional("g").unwrap_or_default(),
        initial_state: optional("initial_state"),
        precond_g: optional("g_atk").unwrap_or_default(),
        precond_beta: optional("beta_atk").unwrap_or_default(),
        log_scale: optional("log_atk_scale").unwrap_or_default(),
        initial_sums: optional("initial_A_state"),
        cu_seqlens: entry.cu_seqlens,
    };
    Golden {
        name: entry.name,
        tensors,
        o: truth("o"),
        final_state: truth("final_state"),
        final_sums: truth("final_A_state"),
        tolerance: entry.tolerance_f32,
    }
}
