//! Every shipped variant: valid WGSL within its limits, translatable to SPIR-V, MSL and HLSL, bindings and params as
//! the Rust side has them. No GPU involved.

use deltanet_shaders::params::{DrawParams, Field};
use deltanet_shaders::sample::draw;
use deltanet_shaders::{Access, Shipped, Variant, shipped};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

fn capabilities(s: &Shipped) -> Capabilities {
    // unpack2x16float: part of every WebGPU.
    let mut c = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let f = s.variant.features;
    c.set(Capabilities::SHADER_FLOAT16, f.f16);
    c.set(Capabilities::SUBGROUP, f.subgroups);
    c.set(Capabilities::COOPERATIVE_MATRIX, f.cooperative_matrix);
    c
}

/// `name, byte offset, bytes` of every scalar of a struct, nested structs flattened in place.
fn flatten(module: &naga::Module, ty: naga::Handle<naga::Type>, at: u32, out: &mut Vec<(String, usize, usize)>) {
    if let naga::TypeInner::Struct { members, .. } = &module.types[ty].inner {
        for m in members {
            match &module.types[m.ty].inner {
                naga::TypeInner::Struct { .. } => flatten(module, m.ty, at + m.offset, out),
                inner => {
                    let size = inner.size(module.to_ctx()) as usize;
                    out.push((m.name.clone().unwrap_or_default(), (at + m.offset) as usize, size));
                }
            }
        }
    }
}

fn check(s: &Shipped) -> Result<(), String> {
    let source = s.variant.source().map_err(|e| e.to_string())?;
    let module = naga::front::wgsl::parse_str(&source.wgsl).map_err(|e| e.emit_to_string(&source.wgsl))?;
    let info = Validator::new(ValidationFlags::all(), capabilities(s))
        .validate(&module)
        .map_err(|e| e.emit_to_string(&source.wgsl))?;

    let [entry] = module.entry_points.as_slice() else { return Err("expected one entry point".into()) };
    if entry.name != "main" {
        return Err(format!("entry point: expected main, got {}", entry.name));
    }
    let invocations: u32 = entry.workgroup_size.iter().product();
    if invocations > s.needs.invocations {
        return Err(format!("{invocations} invocations, listed with {}", s.needs.invocations));
    }
    let mut bytes = 0;
    let mut storage = 0;
    let mut found: Vec<(u32, Access)> = Vec::new();
    for (handle, var) in module.global_variables.iter() {
        match var.space {
            naga::AddressSpace::WorkGroup => {
                bytes += module.types[var.ty].inner.size(module.to_ctx()).next_multiple_of(16);
            }
            naga::AddressSpace::Uniform | naga::AddressSpace::Storage { .. } | naga::AddressSpace::Handle => {
                let binding = var.binding.as_ref().ok_or("a buffer without a binding")?;
                if binding.group != 0 {
                    return Err(format!("group {}: expected 0", binding.group));
                }
                let access = match var.space {
                    naga::AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE) => {
                        Access::ReadWrite
                    }
                    naga::AddressSpace::Storage { .. } => Access::Read,
                    naga::AddressSpace::Handle => Access::Texture,
                    _ if matches!(module.types[var.ty].inner, naga::TypeInner::Array { .. }) => Access::UniformArray,
                    _ => Access::Uniform,
                };
                storage += u32::from(matches!(access, Access::Read | Access::ReadWrite));
                found.push((binding.binding, access));
                if info.get_entry_point(0)[handle].is_empty() {
                    return Err(format!("binding {} is never used", binding.binding));
                }
                if access == Access::Uniform {
                    let mut fields = Vec::new();
                    flatten(&module, var.ty, 0, &mut fields);
                    let ours: Vec<_> =
                        Field::flatten(s.fields).into_iter().map(|(n, at, size)| (n.to_string(), at, size)).collect();
                    if fields != ours {
                        return Err(format!("params: WGSL has {fields:?}, Rust has {ours:?}"));
                    }
                }
            }
            _ => {}
        }
    }
    if bytes > s.needs.workgroup_bytes {
        return Err(format!("{bytes} bytes of workgroup memory, listed with {}", s.needs.workgroup_bytes));
    }
    if storage > s.needs.storage_buffers {
        return Err(format!("{storage} storage buffers, listed with {}", s.needs.storage_buffers));
    }
    found.sort_by_key(|(i, _)| *i);
    let listed: Vec<_> = source.bindings.iter().enumerate().map(|(i, a)| (i as u32, *a)).collect();
    if found != listed {
        return Err(format!("bindings: naga reads {found:?}, Source::bindings has {listed:?}"));
    }
    if s.fields.is_empty() == source.bindings.contains(&Access::Uniform) {
        return Err("params listed but not in the shader, or the other way round".into());
    }
    write_all(s, &module, &info)
}

/// The three other languages. Cooperative matrices exist in SPIR-V and MSL only.
fn write_all(s: &Shipped, module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let policies = naga::proc::BoundsCheckPolicies::default();
    let options =
        naga::back::spv::Options { lang_version: (1, 3), bounds_check_policies: policies, ..Default::default() };
    let spirv = naga::back::spv::write_vec(module, info, &options, None).map_err(|e| format!("SPIR-V: {e}"))?;
    if spirv.first() != Some(&0x0723_0203) {
        return Err("SPIR-V: no magic number".into());
    }
    let options = naga::back::msl::Options {
        lang_version: if s.variant.features.cooperative_matrix { (2, 3) } else { (2, 1) },
        fake_missing_bindings: true,
        ..Default::default()
    };
    naga::back::msl::write_string(module, info, &options, &Default::default()).map_err(|e| format!("MSL: {e}"))?;
    if !s.variant.features.cooperative_matrix {
        let options = naga::back::hlsl::Options {
            shader_model: naga::back::hlsl::ShaderModel::V6_2,
            fake_missing_bindings: true,
            ..Default::default()
        };
        let mut text = String::new();
        let pipeline = naga::back::hlsl::PipelineOptions::default();
        naga::back::hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(module, info, None)
            .map_err(|e| format!("HLSL: {e}"))?;
    }
    Ok(())
}

#[test]
fn every_shipped_variant_is_valid() {
    let all = shipped();
    let failures: Vec<String> =
        all.iter().filter_map(|s| check(s).err().map(|e| format!("{}: {e}", s.variant.label()))).collect();
    assert!(failures.is_empty(), "{} of {} variants:\n{}", failures.len(), all.len(), failures.join("\n"));
    println!("{} variants", all.len());
}

#[test]
fn a_variant_survives_its_line() {
    for s in shipped() {
        assert_eq!(Variant::from_line(&s.variant.line()).as_ref(), Some(&s.variant), "{}", s.variant.line());
    }
    // With its params, which are then no uniform.
    let params = DrawParams { vocab: 70, stride: 128, seen: 8, logits: 12, max_steps: 4 };
    let baked = draw(32).baked(&params);
    assert_eq!(Variant::from_line(&baked.line()).as_ref(), Some(&baked));
    let source = baked.source().unwrap();
    assert!(source.wgsl.contains("const params = Params(70u, 128u, 8u, 12u, 4u);") && source.bindings.len() == 3);
    for line in ["", "no/such_kernel", "delta/step NO_SUCH_NAME=4", "delta/step K=four", "delta/step K=-1"] {
        assert_eq!(Variant::from_line(line), None, "{line:?}");
    }
}

#[test]
fn no_variant_is_listed_twice() {
    let mut labels: Vec<String> =
        shipped().iter().map(|s| format!("{} {:?}", s.variant.label(), s.variant.features)).collect();
    let n = labels.len();
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), n);
}
