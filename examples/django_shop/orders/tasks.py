"""What workers do. Handlers use the ORM as views do."""

from datetime import timedelta

from django.utils import timezone

from evenbeat.contrib.django import app
from orders.models import Order


@app.task(max_retries=5, retry_backoff="2s")
def print_receipt(order_id: int) -> str:
    order = Order.objects.get(id=order_id)
    order.receipt = f"one {order.item}"
    order.save(update_fields=["receipt"])
    return order.receipt


@app.cron("0 3 * * *")
def forget_old_orders() -> None:
    Order.objects.filter(created_at__lt=timezone.now() - timedelta(days=365)).delete()
