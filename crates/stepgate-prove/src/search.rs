//! One question: the solver looks for a call, and the engine confirms it.

use cedar_policy_symcc::Env;
use stepgate_policy::symbolic::{Example, Expr, Scene};

use crate::limits::EXAMPLES_MAX;
use crate::solver::{Solver, SolverError};

/// Puts questions to a solver.
pub struct Prover {
    solver: Solver,
}

/// Whether there is a call like that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Impossible,
    /// This one, and the engine that decides on real calls says so too.
    Example(Box<Example>),
    /// The solver has an example, and the engine does not confirm it.
    Unconfirmed(String),
}

/// Whether an example is one: what the engine says.
pub(crate) type Confirm<'c> = &'c (dyn Fn(&Example) -> Result<bool, String> + 'c);

impl Prover {
    /// Asks this solver.
    pub fn new(solver: Solver) -> Self {
        Self { solver }
    }

    /// The solver.
    pub fn solver(&self) -> &Solver {
        &self.solver
    }

    /// Whether there is a request like that; what the solver found is not confirmed.
    pub(crate) async fn find(
        &mut self,
        scene: &Scene<'_, '_>,
        wanted: &Expr,
    ) -> Result<Option<Env>, SolverError> {
        let question = scene.question(wanted).map_err(SolverError::Unsupported)?;
        self.solver.find(&question).await
    }

    /// Whether an expression is evaluated without an error for every call.
    pub(crate) async fn never_fails(
        &mut self,
        scene: &Scene<'_, '_>,
        expr: &Expr,
    ) -> Result<bool, SolverError> {
        let question = scene.question(expr).map_err(SolverError::Unsupported)?;
        self.solver.never_fails(&question).await
    }

    /// Whether there is a call like that.
    pub(crate) async fn search(
        &mut self,
        scene: &Scene<'_, '_>,
        wanted: &Expr,
        confirm: Confirm<'_>,
    ) -> Result<Answer, SolverError> {
        let Some(first) = self.find(scene, wanted).await? else { return Ok(Answer::Impossible) };
        let readable = Expr::all([wanted.clone(), scene.readable()]);
        let mut found = match self.find(scene, &readable).await? {
            Some(readable) => vec![first, readable],
            None => vec![first],
        };
        let mut last = "no example could be made of what the solver found".to_owned();
        let mut others = vec![wanted.clone()];
        for _ in 0..EXAMPLES_MAX {
            let Some(Env { request, entities }) = found.pop() else { break };
            let examples = scene.examples(&request, &entities, wanted);
            others.extend(examples.iter().flatten().next().and_then(|it| scene.another(it)));
            for example in examples.unwrap_or_else(|error| {
                last = error;
                Vec::new()
            }) {
                match confirm(&example) {
                    Ok(true) => {
                        let still = |example: &Example| confirm(example) == Ok(true);
                        let example = scene.smallest(example, still);
                        return Ok(Answer::Example(Box::new(example)));
                    }
                    Ok(false) => {
                        last = "the engine decides otherwise on the call that the solver found"
                            .to_owned();
                    }
                    Err(error) => {
                        last = format!("the call that the solver found cannot be made: {error}");
                    }
                }
            }
            if found.is_empty() && others.len() > 1 {
                found.extend(self.find(scene, &Expr::all(others.clone())).await?);
            }
        }
        Ok(Answer::Unconfirmed(last))
    }
}
