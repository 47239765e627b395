"""Mail by the SMTP server of EVENBEAT_SMTP_URL."""

import re
import smtplib
import ssl
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from evenbeat.domain.notices import Announcement, as_mail
from evenbeat.errors import InvalidInput
from evenbeat.settings import Settings

_ADDRESSES = re.compile(r"mailto:([^\s,?@]+@[^\s,?@]+(?:,[^\s,?@]+@[^\s,?@]+)*)", re.IGNORECASE)


def check_mail(url: str, settings: Settings) -> list[str]:
    """The addresses of a `mailto:` URL, if mail can be sent at all."""
    match = _ADDRESSES.fullmatch(url)
    if match is None:
        raise InvalidInput(
            "The URL of a webhook for e-mail is an address, such as mailto:ops@example.com; commas "
            "separate several.",
            field="url",
        )
    if settings.smtp_url is None:
        raise InvalidInput(
            "Mail needs a server: set EVENBEAT_SMTP_URL, such as smtp://user:password@mail.example"
            ".com:587, here and where the workers run.",
            field="url",
        )
    return match[1].split(",")


def send_mail(url: str, text: Announcement, message: str, settings: Settings) -> None:
    """Send a notice. TLS is used where the server offers it; `smtps://` demands it from the first
    byte. The id of the message lets mail programs show it once."""
    to = check_mail(url, settings)
    assert settings.smtp_url is not None  # noqa: S101 - as just checked
    server = urlsplit(settings.smtp_url.get_secret_value())
    mail = EmailMessage()
    mail["Subject"] = f"[Evenbeat] {text.subject}"
    mail["From"] = settings.mail_from
    mail["To"] = ", ".join(to)
    mail["Message-ID"] = f"<{message}@{settings.mail_from.rpartition('@')[2].rstrip('>')}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(as_mail(text))
    seconds, host = settings.webhook_timeout_seconds, server.hostname or "localhost"
    smtp: smtplib.SMTP
    if server.scheme == "smtps":
        context = ssl.create_default_context()
        smtp = smtplib.SMTP_SSL(host, server.port or 465, timeout=seconds, context=context)
    else:
        smtp = smtplib.SMTP(host, server.port or 25, timeout=seconds)
    with smtp:
        smtp.ehlo()
        if server.scheme != "smtps" and smtp.has_extn("starttls"):
            smtp.starttls(context=ssl.create_default_context())
        if server.username:
            smtp.login(unquote(server.username), unquote(server.password or ""))
        smtp.send_message(mail)
