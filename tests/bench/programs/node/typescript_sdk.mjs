// A server of the official TypeScript SDK behind node:http.
//
//     node typescript_sdk.mjs HTTP_PORT CONTROL_PORT
//
// Whoever connects to the control port publishes: a line is the number of a URI.
import { createServer } from 'node:http';
import net from 'node:net';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';

const [httpPort, controlPort] = process.argv.slice(2).map(Number);
const capabilities = { resources: { subscribe: true, listChanged: true } };
const handler = createMcpHandler(() => new McpServer({ name: 'bench', version: '1.0.0' }, { capabilities }), {
    maxSubscriptions: 100000,
});
const answer = toNodeHandler(handler);

const server = createServer((request, response) => void answer(request, response));
server.requestTimeout = 0;
server.listen({ port: httpPort, host: '127.0.0.1', backlog: 4096 });

net.createServer((socket) => {
    let rest = '';
    socket.on('error', () => {});
    socket.on('data', (data) => {
        const lines = (rest + data.toString()).split('\n');
        rest = lines.pop();
        for (const line of lines) handler.notify.resourceUpdated(`bench://u/${line}`);
    });
}).listen(controlPort, '127.0.0.1');
