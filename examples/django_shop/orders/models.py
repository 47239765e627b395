from django.db import models


class Order(models.Model):
    item = models.TextField()
    receipt = models.TextField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
