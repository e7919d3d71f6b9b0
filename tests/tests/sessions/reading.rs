//! Prompts that are read in pieces: all of them or nothing.

use deltanet::{Error, Model, Result};
use deltanet_tests::checkpoints::tiny;
use deltanet_tests::compare::identical;
use deltanet_tests::{engines, expected};

use super::{drawn, everything, greedy};

#[test]
fn a_prompt_in_pieces_is_fed_or_not() {
    // With a memory of fixed size alone, and with attention's caches that grow.
    let attention = tiny("fla-delta_net-attn-tiny");
    for (name, device) in engines::two() {
        for directory in [expected::demo_directory(), attention.clone()] {
            let model = Model::open(&directory, &device).unwrap();
            let name = format!("{name}, {}", directory.display());
            let vocab = model.spec().vocab as u32;
            let ids: Vec<u32> = (0..150).map(|i| i * 7919 % vocab).collect();
            let mut session = model.session().unwrap();
            session.feed(&ids[..20]).unwrap();
            let before = everything(&session);
            let logits = session.logits().unwrap();

            let mut asked = Vec::new();
            let read = model.wait(session.in_pieces(
                &ids,
                64,
                async |s, piece| s.feed(piece),
                async |read| {
                    asked.push(read);
                    read < 128
                },
            ));
            assert!(!read.unwrap(), "{name}: it was ended");
            assert_eq!(asked, [0, 64, 128], "{name}");
            assert_eq!(session.tokens(), &ids[..20], "{name}");
            identical(&format!("{name}: ended"), &everything(&session), &before);

            let failing = async |s: &mut deltanet::Session, piece: &[u32]| {
                s.feed(piece)?;
                if piece.len() < 64 { Err(Error::Unsupported("the last piece".into())) } else { Ok(()) }
            };
            let failed: Result<bool> = model.wait(session.in_pieces(&ids, 64, failing, async |_| true));
            assert_eq!(failed.unwrap_err().to_string(), "not supported: the last piece", "{name}");
            assert_eq!(session.tokens(), &ids[..20], "{name}");
            identical(&format!("{name}: failed"), &everything(&session), &before);
            identical(&format!("{name}: logits"), &session.logits().unwrap(), &logits);

            let wrong = model.wait(session.feed_async(&[1, vocab], async |_| true));
            assert!(wrong.unwrap_err().to_string().contains("token 1"), "{name}");

            let mut whole = session.fork().unwrap();
            whole.feed(&ids).unwrap();
            assert!(model.wait(session.feed_async(&ids, async |_| true)).unwrap(), "{name}");
            assert_eq!(session.tokens(), whole.tokens(), "{name}");
            identical(&format!("{name}: whole"), &everything(&session), &everything(&whole));
            assert_eq!(drawn(&mut session, greedy(4)), drawn(&mut whole, greedy(4)), "{name}");
        }
    }
}
