//! What shows a session's memory: pictures of the state, and what each token did to it.

use deltanet::picture::{Grid, Look, Picture, Scope};
use deltanet::{Error, Model, Session};
use deltanet_tests::compare::close;
use deltanet_tests::{checkpoints, engines};

fn tokens(n: u32) -> Vec<u32> {
    (0..n).map(|i| 1 + (i * 7919) % 255).collect()
}

/// A session of a tiny checkpoint on every engine.
fn sessions(name: &str) -> Vec<(&'static str, Session)> {
    let open = |device| Model::open(checkpoints::tiny(name), &device).unwrap().session().unwrap();
    engines::all().into_iter().map(|(engine, device)| (engine, open(device))).collect()
}

fn pixels(session: &Session, width: u32, height: u32, look: &Look) -> deltanet::Result<Vec<u8>> {
    let picture = Picture::of(session)?;
    session.model().wait(picture.pixels(width, height, look))
}

#[test]
fn every_engine_paints_the_same_picture() {
    let all = Look { scope: Scope::All, colours: Look::DARK, gain: 1.5, gap: 3 };
    let one = Look { scope: Scope::Head { layer: 1, head: 2 }, colours: Look::LIGHT, gain: 0.5, gap: 0 };
    let mut pictures: Vec<[Vec<u8>; 2]> = Vec::new();
    for (engine, mut session) in sessions("fla-gated_deltanet-tiny") {
        let grid = Picture::of(&session).unwrap().grid();
        assert_eq!(grid, Grid { layers: 2, heads: 4, key_dim: 32, value_dim: 48 }, "{engine}");
        let empty = pixels(&session, 100, 131, &all).unwrap();
        assert!(empty.chunks(4).all(|p| p == [0; 4] || p[..3] == Look::DARK.zero), "{engine}: an empty memory");
        session.feed(&tokens(75)).unwrap();
        let got = [pixels(&session, 100, 131, &all).unwrap(), pixels(&session, 97, 64, &one).unwrap()];
        assert!(got[1].chunks(4).all(|p| p[3] == 255), "{engine}: a head fills its picture");
        if let Some(want) = pictures.first() {
            for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                assert!(got.abs_diff(*want) <= 1, "{engine}: got {got}, want {want}");
            }
        }
        pictures.push(got);
    }
}

#[test]
fn pictures_that_cannot_be() {
    let (_, session) = sessions("fla-delta_net-tiny").swap_remove(0);
    let look = Look { scope: Scope::All, colours: Look::DARK, gain: 1.0, gap: 4 };
    for (width, height, scope) in [
        (3, 3, Scope::All),
        (0, 100, Scope::All),
        (100_000, 10, Scope::All),
        (64, 64, Scope::Head { layer: 99, head: 0 }),
        (64, 64, Scope::Head { layer: 0, head: 99 }),
    ] {
        let got = pixels(&session, width, height, &Look { scope, ..look });
        assert!(matches!(got, Err(Error::Argument { .. })), "{width}×{height} {scope:?}: {got:?}");
    }
}

#[test]
fn gates_are_the_same_everywhere_and_feed() {
    for name in ["fla-gated_deltanet-tiny", "fla-delta_net-tiny"] {
        let mut first: Option<Vec<f32>> = None;
        for (engine, mut session) in sessions(name) {
            let grid = Picture::of(&session).unwrap().grid();
            let ids = tokens(75);
            let got = session.gates(&ids).unwrap();
            assert_eq!(got.len(), 75 * grid.layers * grid.heads * 2, "{name} {engine}");
            for gate in got.chunks(2) {
                assert!((0.0..=2.0).contains(&gate[0]), "{name} {engine}: β {}", gate[0]);
                assert!(gate[1] > 0.0 && gate[1] <= 1.0, "{name} {engine}: decay {}", gate[1]);
            }
            assert_eq!(session.tokens(), ids, "{name} {engine}");
            let mut plain = session.model().session().unwrap();
            plain.feed(&ids).unwrap();
            close(&format!("{name} {engine}: logits"), &session.logits().unwrap(), &plain.logits().unwrap(), 2e-5);
            match &first {
                None => first = Some(got),
                Some(want) => close(&format!("{name} {engine}: gates"), &got, want, 2e-5),
            }
        }
    }
}
