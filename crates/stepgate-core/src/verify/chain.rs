//! The chains of all sessions: without gaps, linked, and ending where the session's row says.

use std::collections::{HashMap, HashSet};

use crate::digest::Digest;
use crate::ids::{RunId, SessionId};
use crate::session::{Head, Link, LinkKind, Session};

use super::{Problem, SavedHead};

/// Every link, by session. About a hundred bytes each.
#[derive(Default)]
pub(crate) struct Chains {
    links: HashMap<SessionId, Vec<Link>>,
}

impl Chains {
    /// Adds a link. Returns a problem where its digest does not follow from what it links.
    pub(crate) fn add(
        &mut self,
        session_id: SessionId,
        kind: LinkKind,
        run_id: Option<RunId>,
        body: Digest,
        link: Link,
    ) -> Option<Problem> {
        self.links.entry(session_id).or_default().push(link);
        broken(session_id, kind, run_id, body, link)
    }

    /// Adds the link of an archived run, whose digest was computed from what is kept of it.
    pub(super) fn add_kept(&mut self, session_id: SessionId, link: Link) {
        self.links.entry(session_id).or_default().push(link);
    }

    /// Links that do not name the one before them, where that is known.
    pub(crate) fn neighbours(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (session_id, links) in &mut self.links {
            links.sort_by_key(|link| link.number);
            for (before, link) in links.iter().zip(links.iter().skip(1)) {
                let follows =
                    before.number.wrapping_add(1) != link.number || before.digest == link.prev;
                if !follows || before.number == link.number {
                    let place = format!("link {} of session {session_id}", link.number);
                    problems.push(Problem::new(place, "does not name the link before it"));
                }
            }
        }
        problems
    }

    /// Checks that a session's links have no gaps and end at its head. The second value is the number of the
    /// last link, where that is after the head.
    pub(super) fn check(&mut self, session: &Session) -> (Vec<Problem>, Option<u64>) {
        let session_id = session.session_id;
        let links = self.links.entry(session_id).or_default();
        links.sort_by_key(|link| link.number);
        let mut problems = Vec::new();
        let mut head = Head::EMPTY;
        for link in links.iter().take_while(|link| link.number <= session.head.number) {
            let place = || format!("link {} of session {session_id}", link.number);
            if link.number != head.number.wrapping_add(1) {
                problems.push(Problem::new(place(), format!("follows link {}", head.number)));
            } else if link.prev != head.digest {
                problems.push(Problem::new(place(), "does not name the link before it"));
            }
            head = link.head();
        }
        if head != session.head {
            let what = format!(
                "ends at link {} and its links end at {}",
                session.head.number, head.number
            );
            problems.push(Problem::new(format!("session {session_id}"), what));
        }
        let last = links.last().map(|link| link.number);
        (problems, last.filter(|number| *number > session.head.number))
    }

    /// Links of sessions that do not exist.
    pub(super) fn outside(&self, known: &HashSet<SessionId>) -> Vec<Problem> {
        self.links
            .keys()
            .filter(|session_id| !known.contains(session_id))
            .map(|session_id| Problem::new(format!("session {session_id}"), "has links and no row"))
            .collect()
    }

    /// Compares with heads that were saved before.
    pub(super) fn against(&self, saved: &[SavedHead]) -> Vec<Problem> {
        let stands = |head: &SavedHead| {
            let links = self.links.get(&head.session_id).map(Vec::as_slice).unwrap_or_default();
            let at = links.binary_search_by_key(&head.number, |link| link.number);
            match at {
                Ok(at) => links.get(at).is_some_and(|link| link.digest == head.digest),
                Err(_) => head.number == 0,
            }
        };
        saved
            .iter()
            .filter(|head| !stands(head))
            .map(|head| {
                let place = format!("session {}", head.session_id);
                Problem::new(place, format!("saved head {} does not stand", head.number))
            })
            .collect()
    }
}

/// The problem of a link whose digest does not follow from what it links.
pub(super) fn broken(
    session_id: SessionId,
    kind: LinkKind,
    run_id: Option<RunId>,
    body: Digest,
    link: Link,
) -> Option<Problem> {
    if link.links(session_id, kind, run_id, body) {
        return None;
    }
    let about = run_id.map_or_else(String::new, |run_id| format!(" of run {run_id}"));
    let place = format!("link {} of session {session_id} ({kind:?}{about})", link.number);
    Some(Problem::new(place, "does not have the digest of what it links"))
}

#[cfg(test)]
mod tests;
