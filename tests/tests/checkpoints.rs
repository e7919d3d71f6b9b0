//! Checkpoints from disk to plans, and (with an engine) to logits.

use deltanet::checkpoint::Checkpoint;
use deltanet::model::{Spec, Weight};
use deltanet::plan::PlanKind;
use deltanet_tests::checkpoints::{index, stories, tiny};

fn spec(dir: &std::path::Path) -> Spec {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let mut last = (0, 0);
    let spec = Spec::from_checkpoint(&checkpoint, &mut |done, total| last = (done, total)).unwrap();
    assert_eq!(last.0, last.1, "progress ends at its total");
    assert_eq!(last.1, spec.weight_bytes);
    spec
}

#[test]
fn tiny_checkpoints_load_and_plan() {
    for entry in index() {
        let spec = spec(&tiny(&entry.name));
        assert_eq!(spec.model_type, entry.model_type, "{}", entry.name);
        assert_eq!(spec.parameters, entry.params, "{}", entry.name);
        for kind in [PlanKind::Prefill, PlanKind::Score, PlanKind::Decode] {
            let plan = spec.plan(kind, 7).unwrap();
            assert_eq!(plan.ops.len(), plan.labels.len());
            let logits = &plan.buffers[plan.logits.0];
            assert_eq!((logits.width, logits.rows), (256, if kind == PlanKind::Prefill { 1 } else { 7 }));
            println!("{}\n{spec}{plan}", entry.name);
        }
    }
}

#[test]
fn the_demo_model_loads_and_plans() {
    let start = std::time::Instant::now();
    let spec = spec(&stories());
    println!("loaded in {:?}", start.elapsed());
    assert_eq!(spec.parameters, 16_989_152);
    assert_eq!((spec.vocab, spec.hidden, spec.bos, spec.eos.as_slice()), (4096, 384, Some(0), &[0][..]));
    // 6 heads of 64×64, and three rows of 1,152 channels, a layer.
    assert_eq!(spec.state_words(), 8 * (6 * 64 * 64 + 3 * 1152));
    let big = spec.weights.iter().filter_map(|w| if let Weight::Matrix(m) = w { Some(m) } else { None });
    assert_eq!(big.map(|m| m.bytes()).sum::<u64>() / 1_000_000, 33);
    println!("{spec}{}", spec.plan(PlanKind::Decode, 16).unwrap());
}
