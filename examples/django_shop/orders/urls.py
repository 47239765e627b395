from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from orders.models import Order
from orders.tasks import print_receipt


@csrf_exempt  # for curl; forms of a site of yours have their token
def orders(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        job = print_receipt.options(connection=connection).enqueue(order_id=order.id)
        if "fail" in request.POST:
            raise ValueError("no order, and no job")
    return JsonResponse({"order": order.id, "job": str(job.id)}, status=201)


def order(_request: HttpRequest, order_id: int) -> JsonResponse:
    found = get_object_or_404(Order, id=order_id)
    return JsonResponse({"item": found.item, "receipt": found.receipt})


urlpatterns = [path("orders", orders), path("orders/<int:order_id>", order)]
