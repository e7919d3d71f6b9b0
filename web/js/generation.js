// A generation, as the application sees it.

import * as check from "./arguments.js";
import { DeltanetError, wrong } from "./errors.js";
import { watch } from "./thread.js";

const CANCELLED = { finish: "cancelled", endToken: null, tail: "", prompt: undefined };

/** Tokens as they are made: iterate it for pieces, or its `batches()` for as many at a time as have come. */
export class Generation {
  #session;
  #prompt;
  #options;
  #started = false;
  #stopped = false;
  #tellStop = () => {};
  #settle;
  #done = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));

  /** `session`: `{home, id, vocab, check()}`. */
  constructor(session, prompt, options) {
    this.#session = session;
    this.#prompt = prompt;
    this.#options = options;
    // Whoever iterates hears of a failure there.
    this.#done.catch(() => {});
  }

  /** `{finish, endToken, tail, prompt}` once it has ended. What nobody iterates runs to its end for this. */
  get done() {
    // Whoever iterates begins in the same breath.
    queueMicrotask(async () => {
      if (this.#started || this.#stopped) return;
      try {
        for await (const _ of this.batches());
      } catch {
        // `done` tells.
      }
    });
    return this.#done;
  }

  /** Ends it after what has been handed out. */
  stop() {
    this.#stopped = true;
    if (this.#started) this.#tellStop();
    else this.#settle.resolve(CANCELLED);
  }

  async *[Symbol.asyncIterator]() {
    for await (const { tokens, texts, logprobs } of this.#stream(1, 1)) {
      for (let i = 0; i < tokens.length; i++) yield { token: tokens[i], text: texts[i], logprob: logprobs[i] };
    }
  }

  /** `{tokens, texts, logprobs}`, up to `most` tokens each; two batches may be under way before they are asked for. */
  batches(most = 64) {
    return this.#stream(most, 2);
  }

  /** What to send, or an error. */
  #request(pieces) {
    const { id, vocab, check: session } = this.#session;
    session();
    if (!Number.isInteger(pieces) || pieces < 1) throw wrong("most", "a whole number of at least 1", pieces);
    const { signal, onProgress, ...options } = check.options(this.#options, "generate");
    const prompt = this.#prompt ?? undefined;
    return {
      signal,
      onProgress,
      argument: {
        session: id,
        prompt: prompt === undefined ? undefined : check.prompt(prompt, vocab),
        options: { ...options, pieces },
      },
    };
  }

  async *#stream(pieces, credit) {
    if (this.#started) {
      throw new DeltanetError("argument", "generation: expected to be iterated once, got a second time");
    }
    if (this.#stopped) return;
    this.#started = true;
    const { home } = this.#session;
    const queue = [];
    let wake = () => {};
    let end, run, signal, failure;
    let unwatch = () => {};
    const stop = () => this.stop();
    try {
      const request = this.#request(pieces);
      ({ signal } = request);
      signal?.throwIfAborted();
      run = home.next++;
      this.#tellStop = () => home.caller.tell("stop", { run });
      signal?.addEventListener("abort", stop, { once: true });
      unwatch = watch(home, run, request.onProgress, (error) => {
        failure = { error };
        stop();
      });
      home.pieces.set(run, (batch) => {
        queue.push(batch);
        wake();
      });
      home.caller.call("generate", { ...request.argument, run, credit, watched: Boolean(request.onProgress) }).then(
        (result) => (end = { result }),
        (error) => (end = { error }),
      ).finally(() => wake());
      for (;;) {
        while (queue.length > 0) {
          yield queue.shift();
          home.caller.tell("more", { run, credit: 1 });
        }
        if (end) break;
        await new Promise((resolve) => (wake = resolve));
      }
      if (failure) throw failure.error;
      signal?.throwIfAborted();
      if (end.error) throw end.error;
      this.#settle.resolve(end.result);
    } catch (error) {
      end ??= { error };
      this.#settle.reject(error);
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      if (!end) {
        // The reader left: the session ends where it is, before it is used again.
        this.stop();
        while (!end) await new Promise((resolve) => (wake = resolve));
        if (end.result) this.#settle.resolve(end.result);
        else this.#settle.reject(end.error);
      }
      home.pieces.delete(run);
      unwatch();
    }
  }
}
