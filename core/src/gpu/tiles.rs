//! Tiles of products' kernels by shape, as measured: the one place that chooses them.

use deltanet_shaders::linear::{
    COOP_DEEP, COOP_LARGE, COOP_SMALL, COOP_SPLIT_LARGE, COOP_SPLIT_SMALL, CoopInput, CoopTile, DecodeTile, GemvTile,
    PanelTile, Product, Prologue,
};

use super::caps::Caps;

/// The largest power of two up to `most` that divides `rows`.
pub(super) fn rows_a_pass(rows: u32, most: u32) -> u32 {
    (1 << rows.trailing_zeros().min(31)).min(1 << most.max(1).ilog2())
}

/// Large tiles where there are enough of them to fill a large device: one of about 130 multiprocessors.
pub(super) fn coop_tile(rows: u32, out_dim: u32, input: CoopInput, workgroup_bytes: u32) -> CoopTile {
    let split = input == CoopInput::Split;
    let tiles = rows.div_ceil(COOP_LARGE.rows) * out_dim.div_ceil(COOP_LARGE.outputs);
    let (tile, small) = match (split, tiles) {
        (false, 265..) => (COOP_LARGE, COOP_SMALL),
        (false, 96..) => (COOP_DEEP, COOP_SMALL),
        (true, 96..) => (COOP_SPLIT_LARGE, COOP_SPLIT_SMALL),
        (false, _) => (COOP_SMALL, COOP_SMALL),
        (true, _) => (COOP_SPLIT_SMALL, COOP_SPLIT_SMALL),
    };
    if tile.bytes(split) <= workgroup_bytes { tile } else { small }
}

/// From so many eights a row, and below so many rows, a whole workgroup shares a row of a one-pass product.
const SPLIT_GROUPS: u32 = 96;
pub(super) const SPLIT_OUTPUTS: u32 = 5120;
/// Its lanes.
const SPLIT_TEAM: u32 = 128;

/// Lanes that share an output, and the size of a subgroup (0: they meet in workgroup memory). `weights`: rows of the
/// matrix. It depends on the matrix and the device alone: a row's result must not depend on how many rows there are.
pub(super) fn team(groups: u32, weights: u32, paired: bool, caps: &Caps) -> (u32, u32) {
    let subgroup = if caps.subgroup_size.is_power_of_two() && caps.subgroup_size >= 4 { caps.subgroup_size } else { 0 };
    // Where rows are long and not very many, more lanes keep a large device's memory busy.
    if (4..SPLIT_TEAM).contains(&subgroup) && !paired && groups >= SPLIT_GROUPS && weights < SPLIT_OUTPUTS {
        return (SPLIT_TEAM, subgroup);
    }
    let most = if subgroup > 0 { subgroup.min(32) } else { 32 };
    // About three loads a lane hide their latency; fewer lanes make the sum at the end cheaper.
    ((groups / 3).next_power_of_two().clamp(4, most), subgroup)
}

/// Rows from which on a decode's products go through `linear/panel`.
const PANEL_ROWS: u32 = 16;

/// `None` where that kernel does not do what is to be done.
pub(super) fn panel_tile(
    product: &Product,
    (team, subgroup): (u32, u32),
    rows: u32,
    paired: bool,
    caps: &Caps,
) -> Option<PanelTile> {
    let simple = matches!(product.prologue, Prologue::Plain | Prologue::Rms | Prologue::Scaled { .. });
    if subgroup < 8 || team < 8 || !simple || !product.aligned || product.tail || rows < PANEL_ROWS || product.last {
        return None;
    }
    let split = team.div_ceil(subgroup);
    let team = team.min(subgroup);
    // What was fastest on an H200 of some twenty; two teams with the same weights find them in the cache.
    let tile = PanelTile {
        workgroup: 256.max(subgroup),
        team,
        split,
        weight_rows: 8,
        rows: 4,
        sets: 2,
        slabs: 2,
        ahead: true,
        paired,
        subgroup,
    };
    let fits = |tile: &PanelTile| {
        tile.bytes() <= caps.workgroup_bytes
            && tile.workgroup <= caps.max_invocations
            && rows.is_multiple_of(tile.group_rows())
    };
    [tile, PanelTile { slabs: 1, ..tile }].into_iter().find(fits)
}

/// Rows from which on a decode's products use cooperative matrices where they may round.
const DECODE_ROWS: u32 = 16;

/// `None` for few rows, and where the device has no room for the tile.
pub(super) fn decode_tile(rows: u32, outputs: u32, paired: bool, caps: &Caps) -> Option<DecodeTile> {
    // As measured on an H200 with 64 rows: about as many workgroups as it has multiprocessors, where that can be had.
    let (most, each, slice, depth) = match outputs {
        _ if paired => (32, 16, 16, 4),
        ..2048 => (32, 16, 32, 4),
        2048..8192 => (64, 32, 16, 2),
        _ => (64, 32, 16, 4),
    };
    let tile = DecodeTile { teams: 8, rows: rows.next_multiple_of(16).min(most), outputs: each, slice, depth, paired };
    let fits = tile.bytes() <= caps.workgroup_bytes && tile.threads() <= caps.max_invocations;
    Some(tile).filter(|_| rows >= DECODE_ROWS && fits)
}

pub(super) fn gemv_tile(groups: u32, outputs: u32, rows: u32, paired: bool, caps: &Caps) -> GemvTile {
    let weights = if paired { 2 * outputs } else { outputs };
    let (team, subgroup) = team(groups, weights, paired, caps);
    let outputs = match weights {
        // Every output reads the rows again.
        _ if team == SPLIT_TEAM && rows > 2 => 4,
        4096.. if team == SPLIT_TEAM => 4,
        ..1024 if team == SPLIT_TEAM => 1,
        ..2048 if team == SPLIT_TEAM && groups > 256 => 1,
        _ if team == SPLIT_TEAM => 2,
        ..2048 => 1,
        2048..10_240 => 2,
        _ => 4,
    };
    let outputs = if paired { outputs.max(2) / 2 } else { outputs };
    // With several rows, their sums need the registers.
    let rounds = groups.div_ceil(team).max(1);
    let unroll = if rows > 2 { 1 } else { rounds.div_ceil(rounds.div_ceil(4)) };
    let masked = !groups.is_multiple_of(team * unroll) && unroll > 1;
    GemvTile { workgroup: 128, team, outputs, rows, unroll, masked, paired, subgroup }
}
