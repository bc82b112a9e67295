"""Makes a container in Azurite: azure_container.py PORT NAME KEY. Its requests are signed with the account's key."""

import base64
import email.utils
import hashlib
import hmac
import sys
import urllib.request

ACCOUNT = "devstoreaccount1"
VERSION = "2021-08-06"


def main() -> None:
    port, name, key = sys.argv[1:]
    date = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n"
    # The account stands twice: in the path of an emulator, and in front of every signed path.
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signed = "PUT\n" + "\n" * 11 + headers + resource
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    with urllib.request.urlopen(request) as answer:
        if answer.status != 201:
            sys.exit(f"the container was not made: {answer.status}")


main()
