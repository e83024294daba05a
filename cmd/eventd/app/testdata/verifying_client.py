"""Posts Events to an eventd that it verifies, until stdin ends: ADDRESS PORT NAME CA TOKEN PATH RATE.

Each connection is for a few requests, and reads the CA from the file again. The last line is the
number of requests that were answered, and of those that failed.
"""
import http.client
import select
import socket
import ssl
import sys
import time

address, port, name, ca, token, path, rate = sys.argv[1:]
body = sys.stdin.readline().encode()
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
answered = failed = 0
due = time.monotonic()


def connect():
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    connection = http.client.HTTPSConnection(name, int(port), timeout=30)
    plain = socket.create_connection((address, int(port)), timeout=30)
    connection.sock = context.wrap_socket(plain, server_hostname=name)
    return connection


while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        connection = connect()
        for _ in range(10):
            due += 1 / float(rate)
            time.sleep(max(0, due - time.monotonic()))
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read()
            if response.status >= 300:
                raise OSError(response.status)
            answered += 1
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        failed += 1
        print(error, file=sys.stderr)
print(answered, failed)
