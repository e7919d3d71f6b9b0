// Readings that are watched, on a device that takes its time: what becomes of failures while it works, and after. In Node.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { failure, soon } from "./calls.mjs";
import { assert, assertEqual, site, test } from "./harness.mjs";

const after = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export async function watching() {
  const of = (name) => import(pathToFileURL(join(site, "js", name)));
  const [{ between, stoppable }, { Caller, answer }, { abortable }] = await Promise.all(["runs.js", "rpc.js", "thread.js"].map(of));

  /** Both sides of a port, where a reading is so many pieces that take so many milliseconds each. */
  function reader(pieces, milliseconds) {
    const { port1, port2 } = new MessageChannel();
    const [progress, runs] = [new Map(), new Map()];
    const tell = answer(port2, {
      async read({ run, watched }) {
        const state = stoppable({ watched });
        runs.set(run, state);
        const ask = between(state, (read) => tell("progress", { run, read, total: pieces }));
        for (let read = 0; read < pieces; read++) {
          if (!(await ask(read))) throw new DOMException("reading was aborted", "AbortError");
          await after(milliseconds);
        }
        tell("progress", { run, read: pieces, total: pieces });
        return pieces;
      },
      heard: ({ run }) => runs.get(run)?.heard(),
      stop: ({ run }) => runs.get(run)?.stop(),
    });
    const caller = new Caller(port1, { progress: ({ run, ...data }) => progress.get(run)?.(data) });
    const home = { caller, progress, next: 1 };
    const read = (onProgress) => soon(abortable(home, "read", {}, { onProgress }), "read");
    const close = () => {
      port1.close();
      port2.close();
    };
    return { read, close };
  }

  await test("node: what onProgress promises may fail while a device works, and ends the call", async () => {
    const { read, close } = reader(6, 40);
    const mine = new Error("the application's own");
    const heard = [];
    try {
      const error = await failure(read(async (data) => {
        heard.push(data.read);
        await after(5);
        if (data.read === 2) throw mine;
      }));
      assert(error === mine, `another error: ${error}`);
      assertEqual(heard, [0, 1, 2], "reports");
      // Another attempt, on a device that was opened anew, begins after the stop.
      let told = 0;
      const state = stoppable({ watched: true });
      state.stop();
      assertEqual([await soon(between(state, () => (told += 1))(0), "between"), told], [false, 0], "a reading that was stopped before");
    } finally {
      close();
    }
  });

  await test("node: of several failed promises of onProgress the call tells the first, and no other ends the process", async () => {
    const { read, close } = reader(4, 8);
    const [unhandled, printed] = [[], []];
    const note = (error) => unhandled.push(error);
    const { error: print } = console;
    process.on("unhandledRejection", note);
    process.on("uncaughtException", note);
    console.error = (error) => printed.push(error.message);
    try {
      const error = await failure(read(async (data) => {
        await after(20 + 10 * data.read);
        throw new Error(`report ${data.read}`);
      }));
      await after(100);
      // Faster than they fail: nobody waits for them then, but somebody may read of them.
      assertEqual([error?.message, printed.splice(0)], ["report 0", []], "the first");
      const late = async (data) => {
        await after(80);
        if (data.read > 2) throw new Error(`report ${data.read}`);
      };
      assertEqual(await read(late), 4, "the result");
      await after(150);
      assertEqual(printed, ["report 3", "report 4"], "what was printed");
      assertEqual(unhandled.map(String), [], "unhandled");
    } finally {
      console.error = print;
      process.off("unhandledRejection", note);
      process.off("uncaughtException", note);
      close();
    }
  });
}
