use serde_json::json;

use super::*;

const IDS: [&str; 3] = [
    "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10",
    "0198b2c4-7a52-7cc0-9f2e-2f6a4a6f8f10",
    "0198b2c5-0000-7cc0-9f2e-2f6a4a6f8f10",
];

/// What a list of three runs answers.
async fn found(text: &str) -> anyhow::Result<String> {
    let named: Named<RunId> = text.parse()?;
    let row = |id: &&str| json!({ "tool_run_id": id, "principal_id": "a\u{1b}[2Jb" });
    let rows = async |wanted: Wanted<'_>| match wanted {
        Wanted::Newest => Ok(vec![row(&IDS[2])]),
        Wanted::Beginning(prefix) => Ok(IDS.iter().filter(|id| prefix.fits(id)).map(row).collect()),
    };
    find(&RUN, &named, rows).await.map(|id| id.to_string())
}

#[tokio::test]
async fn a_unique_beginning_and_last_name_one_and_a_whole_id_is_not_looked_up() {
    for text in ["0198b2c4-7a51", "0198B2C4-7A51", IDS[0]] {
        assert_eq!(found(text).await.unwrap(), IDS[0], "{text}");
    }
    for text in ["last", "0198b2c5"] {
        assert_eq!(found(text).await.unwrap(), IDS[2], "{text}");
    }
    let unknown = "0198b2c4-7a51-7cc0-9f2e-000000000000";
    assert_eq!(found(unknown).await.unwrap(), unknown);
}

#[tokio::test]
async fn a_beginning_of_several_lists_them_and_one_of_none_says_where_to_look() {
    let several = found("0198b2c4").await.unwrap_err().to_string();
    assert!(several.contains("nothing was done"), "{several}");
    assert!(several.contains(IDS[0]) && several.contains(IDS[1]), "{several}");
    assert!(!several.contains(IDS[2]) && !several.contains('\u{1b}'), "{several}");
    let none = found("ffffffff").await.unwrap_err().to_string();
    assert!(none.contains("`stepgate runs`"), "{none}");
    let named = Named::<RunId>::Last;
    let rows = async |_: Wanted<'_>| Ok(Vec::new());
    let none = find(&RUN, &named, rows).await.unwrap_err().to_string();
    assert!(none.contains("there is no run"), "{none}");
}
