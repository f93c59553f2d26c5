//! Sizes, keys, arrivals, payload classes and the presets read from specs/.
