//! Params of `picture/**`.

super::uniforms! {
    /// `picture/paint`: one layer's tiles.
    PaintParams {
        /// First S of the slot in the layer's states.
        base: u32,
        /// First head shown.
        head: u32,
        /// K.
        key_dim: u32,
        /// V.
        value_dim: u32,
        /// Pixels a row of the picture.
        stride: u32,
        /// Left edge of the tiles.
        x: u32,
        /// Upper edge of the first tile.
        y: u32,
        /// Pixels down from tile to tile.
        pitch: u32,
        /// Pixels across a tile.
        width: u32,
        /// Pixels down a tile.
        height: u32,
        /// Contrast.
        gain: f32,
        /// 0xBBGGRR: colour of -1.
        negative: u32,
        /// Colour of 0.
        zero: u32,
        /// Colour of 1.
        positive: u32,
    }
}
