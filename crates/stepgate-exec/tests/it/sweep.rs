//! Recovery's broom.

use std::fs;
use std::os::unix::fs::symlink;

use crate::world::*;

#[tokio::test]
async fn a_sweep_removes_our_files_at_any_depth_and_nothing_else() {
    let world = World::new();
    let deep = format!("{}.stepgate-deep", "d/".repeat(63));
    world.put(&[
        (".stepgate-1", "x"),
        ("a/.stepgate-2", "x"),
        (&deep, "x"),
        ("a/stepgate-3", "kept"),
        ("a/.stepgate", "kept"),
        (".stepgate-directory/.stepgate-4", "kept"),
    ]);
    fs::write(world.outside.join(".stepgate-5"), "kept").unwrap();
    symlink(&world.outside, world.inside.join("link")).unwrap();
    symlink(world.outside.join(".stepgate-5"), world.inside.join(".stepgate-link")).unwrap();
    let mut kept = world.tree();
    for name in [".stepgate-1", "a/.stepgate-2", &deep] {
        kept.remove(name).unwrap();
    }
    assert_eq!(world.sandbox.sweep().await.unwrap(), 3);
    assert_eq!(world.tree(), kept);
    assert_eq!(tree(&world.outside), files(&[(".stepgate-5", "kept")]));
    assert_eq!(world.sandbox.sweep().await.unwrap(), 0);
}
