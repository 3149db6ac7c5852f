//! Checks of pictures for tests.

use crate::scene::{Scene, Thing};

/// Asserts that every tag is closed in order, and that text has no stray `<`; enough to detect a broken
/// picture.
pub fn assert_well_formed(text: &str) {
    let (mut stack, mut rest) = (Vec::new(), text);
    while let Some(begin) = rest.find('<') {
        let end = rest[begin..].find('>').expect("a tag ends") + begin;
        let tag = &rest[begin + 1..end];
        assert!(!tag.contains('<'), "a stray < before {tag}");
        assert!(tag.matches('"').count() % 2 == 0, "quotes in <{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or("").to_string();
        if tag.starts_with('/') {
            assert_eq!(stack.pop().as_deref(), Some(name.as_str()));
        } else if !tag.ends_with('/') && !tag.starts_with('!') && name != "meta" {
            stack.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(stack.is_empty(), "open: {stack:?}");
    assert!(!text.contains("NaN") && !text.contains("inf\""), "a coordinate is no number");
}

/// Asserts that no text overlaps another, and that none extends beyond the picture.
pub fn assert_legible(scene: &Scene) {
    let texts: Vec<_> = scene.things.iter().filter_map(|t| Some((Scene::extent(t)?, t))).collect();
    for (k, (a, thing)) in texts.iter().enumerate() {
        let Thing::Text { words, .. } = thing else { continue };
        if words.is_empty() {
            continue;
        }
        let inside = a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= scene.width + 0.5 && a[3] <= scene.height + 0.5;
        assert!(inside, "`{words}` leaves `{}`: {a:?}", scene.title);
        for (b, other) in &texts[k + 1..] {
            let Thing::Text { words: others, .. } = other else { continue };
            let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
            assert!(apart || others.is_empty(), "`{words}` and `{others}` overlap in `{}`", scene.title);
        }
    }
}
