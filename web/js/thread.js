// The Worker, and calls on it.

import { disposed, DeltanetError } from "./errors.js";
import { Caller } from "./rpc.js";

let shared;

/** The Worker, started when it is first needed. Without Workers (Node), the same code runs in this thread. */
export function thread() {
  if (shared) return shared;
  /** By run: who hears how far it is, and who takes its pieces. By model: who hears of its device. */
  const [progress, pieces, models] = [new Map(), new Map(), new Map()];
  const events = {
    progress: ({ run, ...data }) => progress.get(run)?.(data),
    pieces: ({ run, ...data }) => pieces.get(run)?.(data),
    lost: ({ model }) => models.get(model)?.forEach((f) => alone(f, { type: "lost" })),
    recovered: ({ model, info }) => models.get(model)?.forEach((f) => alone(f, { type: "recovered", info })),
  };
  let port, end;
  if (typeof Worker === "function") {
    port = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "deltanet" });
    port.onerror = (event) => {
      event.preventDefault();
      if (shared?.port !== port) return;
      const why = event.message ? `: ${event.message}` : "";
      // The next call starts another.
      finish(new DeltanetError("crashed", `the engine could not start${why}`));
    };
    end = () => port.terminate();
  } else {
    const { port1, port2 } = new MessageChannel();
    import("./server.js").then(({ serve }) => serve(port2));
    port = port1;
    end = () => {
      port1.close();
      port2.close();
    };
  }
  shared = { caller: new Caller(port, events), port, progress, pieces, models, end, next: 1 };
  return shared;
}

/** Calls a listener of an event. What it throws belongs to no call, and keeps nobody else from hearing. */
function alone(listener, event) {
  try {
    listener(event);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

function finish(error) {
  shared.caller.fail(error);
  shared.end();
  shared = undefined;
}

/** Ends the Worker and everything in it. The next call starts another. */
export function shutdown() {
  if (shared) finish(disposed("engine", "it was shut down"));
}

/** What belongs to an engine goes with it: its numbers mean other things in the next one. */
export function alive(home, what) {
  if (home !== shared) throw disposed(what, "its engine has ended: load the model again");
}

/**
 * Lets `onProgress`, if there is one, hear of a run, and the Worker know that it has heard: a run that is watched waits
 * for that, each time. What it throws, or what comes of its promise while the run goes on, goes to `fail`, once. Returns
 * what ends the hearing.
 */
export function watch({ caller, progress }, run, onProgress, fail) {
  let [failed, ended] = [false, false];
  const wrong = (error) => {
    // The call has failed already, and by the first.
    if (failed) return;
    if (ended) {
      // Nobody waits for it any more; and thrown from here it would end a Node process.
      console.error(error);
      return;
    }
    failed = true;
    fail(error);
  };
  const hear = (data) => {
    try {
      const promise = onProgress(data);
      if (typeof promise?.then === "function") Promise.resolve(promise).catch(wrong);
    } catch (error) {
      wrong(error);
    }
  };
  if (onProgress) {
    progress.set(run, (data) => {
      if (!failed) hear(data);
      caller.tell("heard", { run });
    });
  }
  return () => {
    ended = true;
    progress.delete(run);
  };
}

/**
 * A call that a signal may end, and that tells how far it is. `home` is what `thread` gave. Where `onProgress` fails, so
 * does the call, as if it had been aborted; `undo` takes back what came of it nevertheless.
 */
export async function abortable(home, method, argument, { signal, onProgress }, undo = () => {}) {
  signal?.throwIfAborted();
  const run = home.next++;
  const stop = () => home.caller.tell("stop", { run });
  let failure;
  const unwatch = watch(home, run, onProgress, (error) => {
    failure = { error };
    stop();
  });
  signal?.addEventListener("abort", stop, { once: true });
  try {
    const result = await home.caller.call(method, { ...argument, run, watched: Boolean(onProgress) });
    if (failure) await undo(result);
    else return result;
  } catch (error) {
    if (!failure) throw signal?.aborted ? signal.reason : error;
  } finally {
    unwatch();
    signal?.removeEventListener("abort", stop);
  }
  throw failure.error;
}
