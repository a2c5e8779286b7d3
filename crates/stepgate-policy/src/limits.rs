//! The limits of a directory of policies, and of the tools that it covers.

/// Most entries in the directory, of any kind.
pub const DIRECTORY_ENTRIES_MAX: usize = 1_024;
/// Most files of policies and cases.
pub const FILES_MAX: usize = 256;
/// Largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// All files together, in bytes.
pub const TOTAL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most policies.
pub const POLICIES_MAX: usize = 1_000;
/// Most budgets.
pub const BUDGETS_MAX: usize = 64;
/// Most cases.
pub const CASES_MAX: usize = 2_000;
/// Longest name of a policy, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest reason of an approval, in bytes.
pub const REASON_BYTES_MAX: usize = 512;
/// Most groups and people that one policy names as approvers.
pub const APPROVERS_MAX: usize = 32;
/// Most people that one policy can require.
pub const QUORUM_MAX: u32 = 10;
/// Most caps on one policy.
pub const CAPS_MAX: usize = 16;
/// Most arguments that one policy makes erasable.
pub const ERASABLE_MAX: usize = 32;
/// Most tools in one set.
pub const TOOLS_MAX: usize = 2_000;
/// Most arguments of one tool that policies see, nested ones included. Further arguments are unseen.
pub const ATTRIBUTES_MAX: usize = 256;
/// Deepest nesting of arguments that policies see. Deeper values are unseen.
pub const ARGS_DEPTH_MAX: usize = 8;
/// Deepest nesting of one policy: brackets, every `if`, and chains like `a.b.c` and `1 + 2 + 3`.
pub const NESTING_MAX: usize = 24;
/// Most operators in one policy.
pub const OPERATORS_MAX: usize = 1_000;
/// Longest policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 32 * 1024;
