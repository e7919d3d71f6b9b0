// Weight access: `weight4(i)` gives elements 4i .. 4i+3 of the bound `weights` as f32, whatever their storage type.
// The one obvious place for packed types.
