use super::*;

fn ids(reply: &Reply, list: &str, id: &str) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let rows = reply.json()[list].as_array().unwrap().clone();
    rows.iter().map(|row| row[id].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn runs_are_filtered_by_principal_time_and_text() {
    let house = House::new().await;
    let think = house.propose(&house.alice, &proposal("THINK", json!({}))).await;
    let (_, asked) = house.ask(&house.bob, "d").await;
    let alices = think.header("stepgate-run").unwrap().to_owned();
    let listed = async |token: &str, query: &str| {
        ids(&house.get(token, &format!("/v1/runs?{query}")).await, "runs", "tool_run_id")
    };
    let (both, bobs) = (vec![asked.clone(), alices.clone()], vec![asked.clone()]);
    let alices = vec![alices];
    let rows = [
        ("principal=alice", alices.clone()),
        ("principal=bob", bobs.clone()),
        ("principal=nobody", vec![]),
        ("since=2020-01-01", both.clone()),
        ("since=2020-01-01T00:00:00.000Z&until=2020-01-02", vec![]),
        ("until=9000-01-01", both),
        ("since=9000-01-01", vec![]),
        ("text=create", bobs.clone()),
        ("text=thin", alices.clone()),
        (&format!("text={asked}"), bobs.clone()),
        ("text=create&principal=alice", vec![]),
    ];
    for (query, expected) in rows {
        assert_eq!(listed(&house.olga, query).await, expected, "{query}");
    }
    // An agent sees its own, whatever it asks for.
    assert_eq!(listed(&house.bob, "principal=alice").await, Vec::<String>::new());
    assert_eq!(listed(&house.bob, "principal=bob").await, bobs);
    assert_eq!(listed(&house.bob, "text=thin").await, Vec::<String>::new());
    let long = format!("text={}", "x".repeat(257));
    for query in ["since=yesterday", "until=2026-02-30", "text=", "principal=", long.as_str()] {
        let reply = house.get(&house.olga, &format!("/v1/runs?{query}")).await;
        assert_eq!(reply.status, 400, "{query}: {}", reply.body);
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_page_and_an_agent_sees_its_own() {
    let house = House::new().await;
    let mut opened = Vec::new();
    for token in [&house.alice, &house.bob] {
        let reply = house.propose(token, &proposal("THINK", json!({}))).await;
        opened.push(reply.header("stepgate-session").unwrap().to_owned());
    }
    let listed = async |token: &str, query: &str| {
        ids(&house.get(token, &format!("/v1/sessions{query}")).await, "sessions", "session_id")
    };
    let all = listed(&house.olga, "").await;
    assert_eq!(all[..2], [opened[1].clone(), opened[0].clone()]);
    assert_eq!(all.len(), 3, "and the system's");
    assert_eq!(listed(&house.anna, "?principal=alice").await, opened[..1]);
    assert_eq!(listed(&house.alice, "").await, opened[..1]);
    assert_eq!(listed(&house.alice, "?principal=bob").await, Vec::<String>::new());
    let page = house.get(&house.olga, "/v1/sessions?limit=1").await.json();
    let next = page["next_before"].as_str().unwrap();
    assert_eq!(next, opened[1]);
    assert_eq!(listed(&house.olga, &format!("?limit=1&before={next}")).await, opened[..1]);
    let bobs = format!("?id_prefix={}", opened[1]);
    assert_eq!(listed(&house.olga, &bobs).await, opened[1..]);
    assert_eq!(listed(&house.alice, &bobs).await, Vec::<String>::new());
    assert_eq!(house.get(&house.olga, "/v1/sessions?id_prefix=0198b2").await.status, 400);
}

#[tokio::test]
async fn approvals_are_filtered_by_principal_and_by_the_beginning_of_their_id() {
    let house = House::new().await;
    let (alices, _) = house.ask(&house.alice, "a").await;
    let (bobs, _) = house.ask(&house.bob, "b").await;
    let listed = async |token: &str, query: &str| {
        ids(&house.get(token, &format!("/v1/approvals?{query}")).await, "approvals", "approval_id")
    };
    let rows = [
        ("principal=alice", vec![alices.clone()]),
        ("principal=nobody", vec![]),
        (&format!("id_prefix={bobs}"), vec![bobs.clone()]),
        (&format!("id_prefix={bobs}&principal=alice"), vec![]),
        (&format!("id_prefix={}", bobs.to_uppercase()), vec![bobs.clone()]),
        ("id_prefix=ffffffff", vec![]),
    ];
    for (query, expected) in rows {
        assert_eq!(listed(&house.olga, query).await, expected, "{query}");
    }
    // An agent sees its own, whatever it asks for.
    assert_eq!(listed(&house.alice, &format!("id_prefix={bobs}")).await, Vec::<String>::new());
    assert_eq!(listed(&house.alice, "principal=bob").await, Vec::<String>::new());
    for query in ["id_prefix=", "id_prefix=0198b2", "id_prefix=0198b2c%25", "principal="] {
        let reply = house.get(&house.olga, &format!("/v1/approvals?{query}")).await;
        assert_eq!(reply.status, 400, "{query}: {}", reply.body);
    }
}
