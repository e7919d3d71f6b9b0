//! `deltanet info`: this machine's adapters; a model's shape, size and plans.

use std::io::{Write, stdout};
use std::path::Path;

use anyhow::Result;
use deltanet::checkpoint::Checkpoint;
use deltanet::gpu::{self, AdapterSummary};
use deltanet::model::Spec;
use deltanet::plan::PlanKind;
use deltanet::{Device, DeviceRequest, Rule};
use serde_json::{Value, json};

use crate::Exit;
use crate::args::InfoArgs;
use crate::find;
use crate::load::name;
use crate::output::{bytes, count};

/// Rows of the plans that are shown: a prompt's piece, and one token.
const PLANS: [(PlanKind, usize); 2] = [(PlanKind::Prefill, 512), (PlanKind::Decode, 1)];

pub(crate) fn run(args: &InfoArgs) -> Result<Exit> {
    // A model that was named must be there; the demo model is shown if it is.
    let folder = match &args.model {
        Some(folder) => Some(find::model(Some(folder))?),
        None if args.plan => Some(find::model(None)?),
        None => find::demo_model(),
    };
    let spec = folder.as_deref().map(read).transpose()?;
    let adapters = pollster::block_on(gpu::adapters());
    let auto = Device::open(&DeviceRequest::Auto)?;
    let mut out = stdout().lock();
    if args.json {
        let adapters: Vec<Value> = adapters.iter().map(adapter_json).collect();
        let model = spec.as_ref().map(spec_json);
        crate::output::json(&mut out, &json!({ "adapters": adapters, "auto": auto.describe(), "model": model }))?;
        return Ok(Exit::Done);
    }
    writeln!(out, "adapters (for --device N)")?;
    for (i, adapter) in adapters.iter().enumerate() {
        print_adapter(&mut out, i, adapter)?;
    }
    if adapters.is_empty() {
        writeln!(out, "  none")?;
    }
    let note = auto.note().map(|n| format!(" ({n})")).unwrap_or_default();
    writeln!(out, "--device auto takes {}{note}", auto.describe())?;
    if let (Some(folder), Some(spec)) = (folder, spec) {
        writeln!(out, "\nmodel {}\n{spec}", name(&folder))?;
        if args.plan {
            for (kind, rows) in PLANS {
                writeln!(out, "\n{}", spec.plan(kind, rows)?)?;
            }
        }
    }
    Ok(Exit::Done)
}

fn read(folder: &Path) -> Result<Spec> {
    Ok(Spec::from_checkpoint(&Checkpoint::open(folder)?, &mut |_, _| ())?)
}

fn print_adapter(out: &mut impl Write, index: usize, adapter: &AdapterSummary) -> Result<()> {
    let AdapterSummary { info, limits, features, .. } = adapter;
    let features = if features.is_empty() { "none of the optional ones".into() } else { features.join(", ") };
    writeln!(out, "  {index}  {} ({:?}, {})", info.name, info.backend, kind(adapter))?;
    if !info.driver.is_empty() {
        writeln!(out, "     driver    {} {}", info.driver, info.driver_info)?;
    }
    writeln!(out, "     features  {features}")?;
    writeln!(
        out,
        "     limits    {} invocations and {} of workgroup memory a workgroup; {} storage buffers a kernel, {} a \
         binding, {} a buffer",
        limits.max_compute_invocations_per_workgroup,
        bytes(limits.max_compute_workgroup_storage_size.into()),
        limits.max_storage_buffers_per_shader_stage,
        bytes(limits.max_storage_buffer_binding_size),
        bytes(limits.max_buffer_size),
    )?;
    writeln!(out, "     operator  {} (head dims 128)", chunk_stages(adapter))?;
    Ok(())
}

/// The chunk stages of the delta rule that run there.
fn chunk_stages(adapter: &AdapterSummary) -> String {
    let describe = |caps: &gpu::Caps| gpu::delta::describe_chunk(&Rule::GATED_DELTANET, 128, 128, caps);
    let half = describe(&gpu::Caps { half_products: true, ..adapter.caps.clone() });
    let exact = describe(&adapter.caps);
    if half == exact { exact } else { format!("{exact}; with half_products {half}") }
}

fn kind(adapter: &AdapterSummary) -> &'static str {
    use deltanet::gpu::wgpu::DeviceType;
    match adapter.info.device_type {
        DeviceType::DiscreteGpu => "discrete GPU",
        DeviceType::IntegratedGpu => "integrated GPU",
        DeviceType::VirtualGpu => "virtual GPU",
        DeviceType::Cpu => "software",
        DeviceType::Other => "unknown kind",
    }
}

fn adapter_json(adapter: &AdapterSummary) -> Value {
    let AdapterSummary { info, limits, features, .. } = adapter;
    json!({
        "name": info.name,
        "backend": format!("{:?}", info.backend),
        "kind": kind(adapter),
        "driver": format!("{} {}", info.driver, info.driver_info),
        "features": features,
        "operator": chunk_stages(adapter),
        "max_invocations": limits.max_compute_invocations_per_workgroup,
        "workgroup_bytes": limits.max_compute_workgroup_storage_size,
        "storage_buffers": limits.max_storage_buffers_per_shader_stage,
        "max_binding": limits.max_storage_buffer_binding_size,
        "max_buffer": limits.max_buffer_size,
    })
}

fn spec_json(spec: &Spec) -> Value {
    json!({
        "model_type": spec.model_type,
        "parameters": spec.parameters,
        "parameters_short": count(spec.parameters),
        "weight_bytes": spec.weight_bytes,
        "vocab": spec.vocab,
        "hidden": spec.hidden,
        "layers": spec.layers.len(),
        "state_bytes": spec.layers.iter().map(|l| 4 * l.words as u64).sum::<u64>(),
        "cache_bytes_per_token": spec.layers.iter().map(|l| 4 * l.cache_per_token as u64).sum::<u64>(),
    })
}
