//! Attention as an operator, on the CPU and on the GPU, against f64.

use deltanet::attention::{Inputs, Options, QkNorm, Shape};
use deltanet::gpu::attention::run;
use deltanet::gpu::delta::Kernels;
use deltanet::{Error, cpu};
use deltanet_tests::attention_reference::{EPS, Form, Session};
use deltanet_tests::compare::close;
use deltanet_tests::devices;
use deltanet_tests::random::Random;

const TOLERANCE: f64 = 4e-6;

/// q, k and v apart, norms, and the output in f64, rounded.
struct Case {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    norms: (Vec<f32>, Vec<f32>),
    want: Vec<f32>,
}

fn case(form: Form, lengths: &[usize]) -> Case {
    let mut random = Random::new(lengths.iter().sum::<usize>() as u64 + form.head_dim as u64);
    let norms = form.norms(&mut random);
    let mut case = Case { q: vec![], k: vec![], v: vec![], norms, want: vec![] };
    for length in lengths {
        let mut session = Session::new(form, &case.norms, 0);
        for row in form.inputs(*length, &mut random).chunks(form.width()) {
            case.want.extend(session.feed(row).iter().map(|x| *x as f32));
            let (q, kv) = row.split_at(form.out());
            let (k, v) = kv.split_at(kv.len() / 2);
            case.q.extend_from_slice(q);
            case.k.extend_from_slice(k);
            case.v.extend_from_slice(v);
        }
    }
    case
}

fn check(form: Form, lengths: &[usize], packed: bool) {
    let Case { q, k, v, norms, want } = case(form, lengths);
    let Form { heads, kv_heads, head_dim, window, theta, norm } = form;
    let tokens = if packed { lengths.iter().sum() } else { lengths[0] };
    let batch = if packed { 1 } else { lengths.len() };
    let shape = Shape { batch, tokens, heads, kv_heads, head_dim };
    let ends = lengths.iter().scan(0, |sum, n| {
        *sum += *n as u32;
        Some(*sum)
    });
    let offsets: Vec<u32> = std::iter::once(0).chain(ends).collect();
    let qk_norm = norm.then_some(QkNorm { q: &norms.0, k: &norms.1, eps: EPS });
    let inputs = Inputs { q: &q, k: &k, v: &v, qk_norm, cu_seqlens: packed.then_some(&offsets) };
    let options = Options { scale: None, window, rope_theta: theta };
    let what = format!("{form:?}, {lengths:?}");
    close(&format!("cpu: {what}"), &cpu::attention::attend(&shape, &inputs, &options).unwrap(), &want, TOLERANCE);
    let gpu = devices::default_limits();
    for kernels in [Kernels::Software, Kernels::Gpu] {
        let got = gpu.wait(run(gpu, kernels, &shape, &inputs, &options)).unwrap();
        close(&format!("{kernels:?}: {what}"), &got, &want, TOLERANCE);
    }
}

#[test]
fn batches_and_packed_sequences() {
    let form = Form { heads: 4, kv_heads: 2, head_dim: 16, window: None, theta: Some(1e4), norm: false };
    check(form, &[70], false);
    check(form, &[33, 33], false);
    check(form, &[1, 0, 64, 65], true);
    check(Form { window: Some(20), norm: true, ..form }, &[40, 3, 65], true);
    check(Form { heads: 3, kv_heads: 3, head_dim: 34, theta: None, ..form }, &[35, 2], true);
}

#[test]
fn what_does_not_fit_is_refused() {
    let shape = Shape { batch: 1, tokens: 2, heads: 2, kv_heads: 1, head_dim: 2 };
    let (q, kv) = ([0.0; 8], [0.0; 4]);
    let inputs = Inputs { q: &q, k: &kv, v: &kv, qk_norm: None, cu_seqlens: None };
    let options = Options::default();
    let gpu = devices::default_limits();
    let both = |shape: &Shape, inputs: &Inputs<'_>, options: &Options, word: &str| {
        let on_gpu = gpu.wait(deltanet::gpu::attention::attend(gpu, shape, inputs, options));
        for result in [cpu::attention::attend(shape, inputs, options), on_gpu] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Argument { .. }), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
    };
    both(&Shape { heads: 3, kv_heads: 2, ..shape }, &inputs, &options, "heads");
    both(&Shape { tokens: 3, ..shape }, &inputs, &options, "q: expected [1, 3, 2, 2]");
    both(&Shape { head_dim: 0, ..shape }, &inputs, &options, "head_dim");
    both(&shape, &Inputs { v: &q, ..inputs }, &options, "v: expected [1, 2, 1, 2], got 8 elements");
    both(&shape, &Inputs { cu_seqlens: Some(&[0, 3]), ..inputs }, &options, "cu_seqlens");
    both(&shape, &inputs, &Options { window: Some(0), ..options }, "window");
    both(&shape, &inputs, &Options { scale: Some(f32::NAN), ..options }, "scale");
    both(&shape, &inputs, &Options { rope_theta: Some(-1.0), ..options }, "rope_theta");
    let norm = QkNorm { q: &[1.0], k: &[1.0, 1.0], eps: 0.0 };
    both(&shape, &Inputs { qk_norm: Some(norm), ..inputs }, &options, "qk_norm.q");
    // The GPU's kernels end at 512 channels.
    let shape = Shape { batch: 1, tokens: 1, heads: 1, kv_heads: 1, head_dim: 600 };
    let x = [1.0; 600];
    let inputs = Inputs { q: &x, k: &x, v: &x, qk_norm: None, cu_seqlens: None };
    assert_eq!(cpu::attention::attend(&shape, &inputs, &options).unwrap(), x);
    let error = gpu.wait(deltanet::gpu::attention::attend(gpu, &shape, &inputs, &options)).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
}
