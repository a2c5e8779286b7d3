//! The solver: a process that answers one question at a time.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use cedar_policy::{Policy, RequestEnv, Schema};
use cedar_policy_symcc::err::Error as SymccError;
use cedar_policy_symcc::solver::LocalSolver;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, Env};
use stepgate_core::text::with_causes;
use stepgate_policy::symbolic::Question;
use tokio::process::Command;
use tokio::time::timeout;

/// Which solver is asked, and for how long.
#[derive(Clone, Debug)]
pub struct SolverSettings {
    /// The program: cvc5, by its path or by its name on the search path.
    pub program: PathBuf,
    /// How long one question may take.
    pub timeout: Duration,
}

/// Why the solver gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SolverError {
    /// It is not installed.
    #[error(
        "there is no solver `{0}`: install cvc5 (Debian and Ubuntu: `apt install cvc5`; elsewhere: a program from \
         https://cvc5.github.io/downloads.html), or name it with `--solver`, the environment variable `CVC5` or \
         `policy.solver` in stepgate.toml"
    )]
    Missing(String),
    /// It cannot be started.
    #[error("the solver `{0}` cannot be started: {1}")]
    Start(String, std::io::Error),
    /// It took too long.
    #[error(
        "the solver gave no answer within {0} ms; raise `policy.solver_timeout_ms` in stepgate.toml, or ask about \
         fewer tools"
    )]
    TimedOut(u128),
    /// It cannot tell.
    #[error("the solver answered that it does not know")]
    Unknown,
    /// It ended, or said something that is no answer.
    #[error("the solver failed: {0}; it must be cvc5, version 1.0.3 or later")]
    Failed(String),
    /// It is wrong about something that is known.
    #[error(
        "the solver `{0}` gave a wrong answer to a question whose answer is known; it must be cvc5, version 1.0.3 \
         or later"
    )]
    Wrong(String),
    /// The question has something that cannot be put to it.
    #[error("this cannot be put to the solver: {0}")]
    Unsupported(String),
}

impl SolverError {
    /// Whether it is about one question, and others may still be answered.
    pub(crate) fn is_about_one_question(&self) -> bool {
        match self {
            Self::TimedOut(_) | Self::Unknown | Self::Unsupported(_) => true,
            Self::Missing(_) | Self::Start(..) | Self::Failed(_) | Self::Wrong(_) => false,
        }
    }
}

/// A solver that runs, or will run when it is asked.
pub struct Solver {
    settings: SolverSettings,
    version: String,
    running: Option<CedarSymCompiler<LocalSolver>>,
    asked: u64,
}

impl Solver {
    /// Starts the solver, and asks it two questions whose answers are known: a program that says `unsat` to
    /// everything would prove everything.
    pub async fn start(settings: SolverSettings) -> Result<Self, SolverError> {
        let version = version(&settings).await?;
        let mut solver = Self { settings, version, running: None, asked: 0 };
        let (possible, impossible) =
            (known("true"), known("principal == A::\"a\" && principal == A::\"b\""));
        let is_right =
            solver.find(&possible?).await?.is_some() && solver.find(&impossible?).await?.is_none();
        if !is_right {
            return Err(SolverError::Wrong(solver.settings.program.display().to_string()));
        }
        solver.asked = 0;
        Ok(solver)
    }

    /// What it says that it is.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How many questions it has answered.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// A request that the policy of a question matches; none where there is none.
    pub(crate) async fn find(&mut self, question: &Question) -> Result<Option<Env>, SolverError> {
        let compiled = compiled(question)?;
        let limit = self.settings.timeout;
        let running = self.running()?;
        let answer = timeout(limit, running.check_never_matches_with_counterexample_opt(&compiled));
        let answer = answer.await;
        self.taken(answer)
    }

    /// Whether the policy of a question is evaluated without an error for every request.
    pub(crate) async fn never_fails(&mut self, question: &Question) -> Result<bool, SolverError> {
        let compiled = compiled(question)?;
        let limit = self.settings.timeout;
        let running = self.running()?;
        let answer = timeout(limit, running.check_never_errors_opt(&compiled)).await;
        self.taken(answer)
    }

    fn running(&mut self) -> Result<&mut CedarSymCompiler<LocalSolver>, SolverError> {
        let fresh = match self.running.take() {
            Some(running) => running,
            None => {
                let mut command = Command::new(&self.settings.program);
                // Texts that are looked for within others need the last one, in some versions.
                command.args(["--lang", "smt", "--strings-exp"]).kill_on_drop(true);
                let process = LocalSolver::from_command(&mut command).map_err(failed)?;
                CedarSymCompiler::new(process).map_err(error_of)?
            }
        };
        Ok(self.running.insert(fresh))
    }

    /// An answer that came in time. After anything else the process is in an unknown state: it is ended, and the
    /// next question starts another one.
    fn taken<T>(
        &mut self,
        answer: Result<Result<T, SymccError>, tokio::time::error::Elapsed>,
    ) -> Result<T, SolverError> {
        self.asked += 1;
        let answer = match answer {
            Ok(answer) => answer.map_err(error_of),
            Err(_) => Err(SolverError::TimedOut(self.settings.timeout.as_millis())),
        };
        if answer.is_err() {
            self.running = None;
        }
        answer
    }
}

async fn version(settings: &SolverSettings) -> Result<String, SolverError> {
    let shown = settings.program.display().to_string();
    let mut command = Command::new(&settings.program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(settings.timeout, command.output()).await;
    let output = output.map_err(|_| SolverError::TimedOut(settings.timeout.as_millis()))?;
    let output = output.map_err(|error| match error.kind() == ErrorKind::NotFound {
        true => SolverError::Missing(shown),
        false => SolverError::Start(shown, error),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    let version = line.strip_prefix("This is ").unwrap_or(line);
    let version: String = version.chars().filter(|c| !c.is_control()).take(80).collect();
    Ok(version.trim().to_owned())
}

/// A question whose answer is known.
fn known(condition: &str) -> Result<Question, SolverError> {
    let wrong = |error: String| SolverError::Unsupported(error);
    let schema =
        "entity A; action \"a\" appliesTo { principal: A, resource: A, context: { s: String } };";
    let (schema, _) =
        Schema::from_cedarschema_str(schema).map_err(|error| wrong(error.to_string()))?;
    // The text keeps the question from being answered before it reaches the solver.
    let policy = format!(
        "permit (principal, action, resource) when {{ context.s like \"a*\" && {condition} }};"
    );
    let policy = Policy::parse(None, policy).map_err(|error| wrong(error.to_string()))?;
    let kind = |text: &str| text.parse().map_err(|_| wrong(format!("`{text}` is no type")));
    let action = "Action::\"a\"".parse().map_err(|_| wrong("no action".to_owned()))?;
    let env = RequestEnv::new(kind("A")?, action, kind("A")?);
    Ok(Question { schema: schema.into(), env, policy })
}

fn compiled(question: &Question) -> Result<CompiledPolicy, SolverError> {
    let Question { schema, env, policy } = question;
    CompiledPolicy::compile(policy, env, schema).map_err(error_of)
}

fn failed(error: cedar_policy_symcc::err::SolverError) -> SolverError {
    SolverError::Failed(with_causes(&error))
}

fn error_of(error: SymccError) -> SolverError {
    match error {
        SymccError::SolverUnknown => SolverError::Unknown,
        SymccError::SolverError(error) => failed(error),
        SymccError::DecodeModel(error) => SolverError::Failed(error.to_string()),
        SymccError::ModelInvalid { .. } | SymccError::ConcretizeError(_) => {
            SolverError::Failed("it gave an example that is none".to_owned())
        }
        SymccError::PolicyNotWellTyped { errs } => {
            let errors: Vec<String> = errs.iter().map(ToString::to_string).collect();
            SolverError::Unsupported(errors.join("; "))
        }
        SymccError::IncompleteSchema(_)
        | SymccError::ActionNotInSchema(_)
        | SymccError::CompileError(_)
        | SymccError::EncodeError(_)
        | SymccError::NoPolicies => SolverError::Unsupported(error.to_string()),
    }
}
