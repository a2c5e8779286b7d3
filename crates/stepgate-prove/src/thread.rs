//! The thread that a proof runs on.

/// Cedar and its symbolic compiler handle expressions by recursion.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Runs a proof on a thread with a large stack and a runtime of its own, and waits for it. It blocks.
pub fn on_thread<T: Send>(proof: impl AsyncFnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("proof".into()).stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(proof())).map_err(|error| error.to_string())
        });
        let running = running.map_err(|error| format!("no thread for the proof: {error}"))?;
        running.join().map_err(|_| "the proof panicked; please report it".to_owned())?
    })
}
