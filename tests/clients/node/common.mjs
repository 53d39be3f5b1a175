// What both TypeScript client scripts share: options, steps, and the line to the test that runs them.
// Each step prints one line, "@@ {step, state, detail}". What must happen outside the client (a publish, a
// replica's death between two steps) is asked for by POST to the test's control address.

export const TEXT = 'test://static-text';
export const BINARY = 'test://static-binary';
export const WATCHED = 'test://watched-resource';
export const MISSING = 'test://no-such-resource-for-acceptance';
export const TEMPLATE = 'test://template/{id}/data';
export const INSTANCE = 'test://template/123/data';
const WAIT_MS = 15_000; // a replica may just have been killed

const argv = process.argv.slice(2);
export const options = Object.fromEntries(
  argv.flatMap((name, i) => (i % 2 ? [] : [[name.replace(/^--/, ''), argv[i + 1]]])),
);
// A fleet in open mode is told the tenant; with a token it is the credential's.
const token = process.env.BROKER_TEST_TOKEN;
export const headers = token ? { Authorization: `Bearer ${token}` } : { 'Broker-Tenant': options.tenant };

let failed = 0;

export function report(step, error) {
  if (error) failed++;
  const detail = error ? `${error.name ?? 'Error'}: ${error.message ?? error}`.slice(0, 500) : '';
  console.log('@@ ' + JSON.stringify({ step, state: error ? 'FAIL' : 'PASS', detail }));
}

// Runs one step and goes on after one that failed; then lets the test do what belongs between two steps.
export async function step(name, work) {
  try {
    await work();
    report(name);
  } catch (error) {
    report(name, error);
  }
  await ask(`between/${name}`);
}

export async function ask(what) {
  const response = await fetch(`${options.control}/${what}`, { method: 'POST' });
  await response.text();
  if (!response.ok) throw new Error(`the test could not do ${what}: ${response.status}`);
}

export async function waitFor(condition, what) {
  const end = Date.now() + WAIT_MS;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`not within ${WAIT_MS} ms: ${typeof what === 'string' ? what : what()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function assert(condition, message) {
  if (!condition) throw new Error(message ?? 'assertion failed');
}

export async function main(work) {
  try {
    await work();
  } catch (error) {
    report('session', error);
  }
  process.exit(failed ? 1 : 0);
}

// The steps that only ask. `complete` takes the SDK's own request; `codes` are those of "not found".
export async function asking(client, read, codes) {
  await step('list', async () => {
    const uris = (await client.listResources()).resources.map((each) => each.uri);
    for (const uri of [TEXT, BINARY, WATCHED]) assert(uris.includes(uri), `${uri} not in ${uris}`);
  });
  await step('templates', async () => {
    const { resourceTemplates } = await client.listResourceTemplates();
    assert(resourceTemplates.some((each) => each.uriTemplate === TEMPLATE), 'the template is not listed');
  });
  await step('read-text', async () => {
    const contents = await read(TEXT);
    assert(contents.text && contents.mimeType === 'text/plain' && contents.uri === TEXT, JSON.stringify(contents));
  });
  await step('read-binary', async () => {
    const contents = await read(BINARY);
    assert(contents.blob && contents.mimeType === 'image/png', JSON.stringify(contents));
  });
  await step('read-template', async () => assert((await read(INSTANCE)).text.includes('123')));
  await step('complete', async () => {
    const { completion } = await client.complete({
      ref: { type: 'ref/resource', uri: TEMPLATE }, argument: { name: 'id', value: '1' },
    });
    assert(completion.values.includes('123'), JSON.stringify(completion));
  });
  await step('not-found', async () => {
    let error;
    try { await read(MISSING); } catch (caught) { error = caught; }
    assert(error, 'a missing resource was read');
    assert(codes.includes(error.code), `${error.name} ${error.code}: ${error.message}`);
  });
}

// The subscription steps. `inbox` gets each notification as [method, uri]; `stop` undoes `subscribe`.
export async function watching(read, inbox, errors, subscribe, stop, { endsAll }) {
  const cues = () => inbox.filter(([method, uri]) => method === 'updated' && uri === WATCHED).length;
  const lists = () => inbox.filter(([method]) => method === 'list_changed').length;
  const before = (await read(WATCHED)).text;
  await step('subscribe', subscribe);
  await step('update', async () => {
    await ask('change');
    await waitFor(() => cues() > 0, () => `a cue; errors: ${errors}`);
  });
  await step('reread', async () => assert((await read(WATCHED)).text !== before, 'the contents did not change'));
  await step('list-changed', async () => {
    const known = lists();
    await ask('relist');
    await waitFor(() => lists() > known, () => `a list change; errors: ${errors}`);
  });
  await step('unsubscribe', async () => {
    await stop();
    const told = cues();
    const known = lists();
    await ask('change');
    if (endsAll) {
      await read(WATCHED);
    } else {
      // The list change comes behind the change in the same log: once it is here, no cue will come.
      await ask('relist');
      await waitFor(() => lists() > known, () => `a list change; errors: ${errors}`);
    }
    assert(cues() === told, 'cued after unsubscribing');
  });
}
