//! Tells the memory that an item takes in Rebate from its class and its size in memcached, as the sample of values
//! shows it.

/// The memory of items in Rebate.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// By the index of the class.
    classes: Vec<ClassSizes>,
    /// For classes without a sample.
    all: ClassSizes,
}

/// A value of the sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledItem {
    pub(super) class: usize,
    /// The item's size as memcached counts it (bytes).
    pub(super) item_bytes: f64,
    /// The memory of the item in Rebate (bytes).
    pub(super) rebate_bytes: f64,
}

/// The memory of the items of one class.
#[derive(Clone, Debug, Default)]
struct ClassSizes {
    /// Groups of items of like size, in ascending order: the largest size in the group (bytes), and the memory in
    /// Rebate for each byte of the size.
    groups: Vec<(f64, f64)>,
    /// The mean memory of an item (bytes).
    mean_bytes: f64,
}

impl Sizes {
    /// Groups the sample.
    pub(super) fn new(sample: &[SampledItem]) -> Self {
        let classes = sample.iter().map(|item| item.class + 1).max().unwrap_or(0);
        let of_class = |class: usize| {
            let items = sample.iter().filter(|item| item.class == class);
            ClassSizes::new(items.copied().collect())
        };
        Self {
            classes: (0..classes).map(of_class).collect(),
            all: ClassSizes::new(sample.to_vec()),
        }
    }

    /// Returns the memory in Rebate (bytes) of an item with this size in memcached. If the size is not known (0), the
    /// memory is the mean of the class.
    pub(super) fn rebate_bytes(&self, class: usize, item_bytes: u32) -> f64 {
        let sampled = self.classes.get(class).filter(|sizes| !sizes.groups.is_empty());
        sampled.unwrap_or(&self.all).rebate_bytes(f64::from(item_bytes))
    }
}

impl ClassSizes {
    fn new(mut items: Vec<SampledItem>) -> Self {
        items.sort_unstable_by(|a, b| a.item_bytes.total_cmp(&b.item_bytes));
        let sum = |items: &[SampledItem], bytes: fn(&SampledItem) -> f64| -> f64 {
            items.iter().map(bytes).sum()
        };
        let group = |group: &[SampledItem]| {
            let largest = group.last().map_or(0.0, |item| item.item_bytes);
            let rebate_bytes = sum(group, |item| item.rebate_bytes);
            (largest, rebate_bytes / sum(group, |item| item.item_bytes))
        };
        let groups = items.chunks(GROUP_ITEMS).map(group).collect();
        let mean_bytes = sum(&items, |item| item.rebate_bytes) / items.len().max(1) as f64;
        Self { groups, mean_bytes }
    }

    fn rebate_bytes(&self, item_bytes: f64) -> f64 {
        let at = self.groups.partition_point(|(largest, _)| *largest < item_bytes);
        match self.groups.get(at).or(self.groups.last()) {
            Some((_, ratio)) if item_bytes > 0.0 => ratio * item_bytes,
            _ => self.mean_bytes,
        }
    }
}

/// The number of sampled items whose mean decides.
const GROUP_ITEMS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(class: usize, sizes: impl Iterator<Item = u32>, ratio: f64) -> Vec<SampledItem> {
        let item = |bytes: u32| SampledItem {
            class,
            item_bytes: f64::from(bytes),
            rebate_bytes: ratio * f64::from(bytes),
        };
        sizes.map(item).collect()
    }

    #[test]
    fn an_item_takes_what_items_of_its_size_take() {
        let mut items = sample(1, 100..164, 0.5);
        items.extend(sample(1, 10_000..10_064, 0.1));
        let sizes = Sizes::new(&items);
        let near = |bytes: u32, expected: f64| {
            let found = sizes.rebate_bytes(1, bytes);
            assert!((found - expected).abs() < 1e-6 * expected, "{bytes}: {found}");
        };
        near(50, 25.0);
        near(120, 60.0);
        near(10_010, 1_001.0);
        near(1_000_000, 100_000.0);
    }

    #[test]
    fn a_size_that_is_not_known_is_the_mean_of_the_class() {
        let mut items = sample(0, 100..101, 1.0);
        items.extend(sample(1, 300..301, 1.0));
        let sizes = Sizes::new(&items);
        assert_eq!(sizes.rebate_bytes(0, 0), 100.0);
        assert_eq!(sizes.rebate_bytes(1, 0), 300.0);
        // No value of this class was read.
        assert_eq!(sizes.rebate_bytes(7, 0), 200.0);
        assert_eq!(Sizes::new(&[]).rebate_bytes(0, 50), 0.0);
    }
}
